"""The rules of the house that no linter checks: read from the files themselves."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.longest import LONGEST

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("events", "coldstart", "preemption", "runtime", "autoscaler", "deploy")
MOST_LINES = 500
MOST_METHODS = 5
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".csv", ".jinja", ".html", ".svg", ".sh", ""}


def python_files(*folders: str) -> list[Path]:
    """All Python files below these folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def project() -> dict[str, dict]:
    parsed: dict[str, dict] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return parsed


SURFACE = ROOT / "preemption" / "trainer" / "__init__.py"
"""The one place that re-exports: trainers write `from preemption.trainer import CheckpointGuard` (design §12)."""


def test_init_files_hold_a_docstring_only() -> None:
    """Importing a package runs nothing and re-exports nothing."""
    for path in python_files(*PACKAGES, "bench"):
        if path.name == "__init__.py" and path != SURFACE:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assert len(body) == 1, shown(path)
            assert isinstance(body[0], ast.Expr), shown(path)
            assert isinstance(body[0].value, ast.Constant), shown(path)
            assert isinstance(body[0].value.value, str), shown(path)


def test_every_package_but_preemption_has_an_init_file() -> None:
    """`preemption` is a namespace, so that the trainer SDK can be a wheel of its own; a forgotten file elsewhere would
    make another one by accident."""
    missing = {shown(path.parent) for path in python_files(*PACKAGES) if not (path.parent / "__init__.py").exists()}
    assert missing == {"preemption"}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_import_is_ours(name: str) -> None:
    """Another distribution (PyPI's Events) installs a package of the same name; ours must be the one that is found."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    # A namespace is told once for each entry of sys.path that leads to it, and those may repeat.
    assert {Path(place).resolve() for place in spec.submodule_search_locations or ()} == {ROOT / name}


def test_files_are_short() -> None:
    """A file that needs more than five hundred lines is two files."""
    long = {
        shown(path): lines
        for path in python_files(*PACKAGES, "bench", "tests")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES
    }
    assert long == {}


def find_tests(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def test_every_test_says_what_it_shows() -> None:
    """In its docstring."""
    silent = [
        f"{shown(path)}::{test.name}"
        for path in python_files("tests")
        if path.name.startswith("test_")
        for test in find_tests(path)
        if not ast.get_docstring(test)
    ]
    assert silent == []


def test_every_exception_to_a_rule_has_its_reason() -> None:
    """A `noqa` or a `type: ignore` names the rule, and beside it stands why."""
    exception = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<rest>.*)$")
    reasoned = re.compile(r"^(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[a-z-]+(,\s*[a-z-]+)*\])\s+(-|#|\()\s*\S.{2,}")
    bare = [
        f"{shown(path)}:{number}"
        for path in python_files(*PACKAGES, "tests")
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := exception.search(line)) and not reasoned.match(found["rest"])
    ]
    assert bare == []


def test_nothing_is_left_to_be_done() -> None:
    """What is missing stands in docs/flaws.md or in an issue, not in the code."""
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"))
    marker = re.compile(rf"#.*\b({words})\b|raise NotImplementedError")
    found = [
        f"{shown(path)}:{number}"
        for path in python_files(*PACKAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    assert found == []


def protocols() -> Iterator[tuple[str, int]]:
    """(name, methods) of each Protocol in a `ports.py`, and of the event log's."""
    for path in [*(ROOT / name / "ports.py" for name in PACKAGES), ROOT / "deploy" / "api" / "ports.py"]:
        if not path.exists():
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            bases = {ast.unparse(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
            if isinstance(node, ast.ClassDef) and "Protocol" in bases:
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
                yield f"{shown(path)}::{node.name}", len(methods)


def test_ports_are_small() -> None:
    """A port has at most five methods: more is two ports."""
    assert list(protocols()), "there are ports"
    assert {name: count for name, count in protocols() if count > MOST_METHODS} == {}


def test_the_wheel_holds_the_packages_and_no_tests() -> None:
    """What is built is what is checked: the wheel, the types and the import contracts name the same packages."""
    tool = project()["tool"]
    assert set(tool["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
    assert set(tool["mypy"]["packages"]) == set(PACKAGES)
    assert set(tool["importlinter"]["root_packages"]) == set(PACKAGES)


def test_every_dependency_has_its_reason() -> None:
    """Beside it in pyproject.toml."""
    wanted = re.compile(r'^\s+"[A-Za-z0-9_.-]+(\[[a-z,]+\])?[^"]*",')
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    first = lines.index("dependencies = [")
    last = lines.index("[project.scripts]")
    bare = [line for line in lines[first:last] if wanted.match(line) and "# " not in line]
    assert bare == []


def text_files() -> Iterator[Path]:
    """Everything that is ours: the folders of the repository and the files at its root."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in TEXT)
    for folder in (*PACKAGES, "bench", "docs", "requirements", "tests", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def test_no_file_names_a_machine_or_a_registry() -> None:
    """Nothing says where it was built or from where packages came: it is the same for everybody."""
    hosts = [f"{name}.{end}" for name, end in (("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"))]
    places = [f"/{folder}/" for folder in ("work", "root", "home")]
    words = re.compile("|".join(re.escape(word) for word in (*hosts, *places)))
    found = [
        f"{shown(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


def test_the_longest_files_are_there() -> None:
    """The list that puts them first names files of the suite."""
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
