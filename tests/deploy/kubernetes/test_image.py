"""The Dockerfile, as far as it can be judged without a container engine: it is read, and held against the tree."""

from __future__ import annotations

import fnmatch
import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

import pytest

from deploy.kubernetes.packaging import FOLDER, PARTS, documents

ROOT: Final = Path(__file__).parents[3]
KNOWN: Final = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest of its line), with continued lines joined, without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def last_stage() -> list[tuple[str, str]]:
    """The instructions of what runs."""
    found = instructions()
    begins = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[begins:]


def allowed(path: str) -> bool:
    """Whether .dockerignore lets a file or folder of the tree into the build, as Docker reads it: the last line that
    fits decides."""
    told = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split():
        pattern = line.removeprefix("!")
        if any(fnmatch.fnmatch(part, pattern) for part in _parents(path)):
            told = not line.startswith("!")
    return not told


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def test_stages_are_known_and_no_image_names_a_host() -> None:
    """Each stage builds on an official image or an earlier stage; each COPY takes from one that is there."""
    stages: set[str] = set()
    for word, rest in instructions():
        assert word in KNOWN, word
        if word == "FROM":
            image, *named = rest.split()
            assert "/" not in image, image
            stages.update(named[1:])
        source = re.match(r"--from=(\S+)", rest)
        assert word != "COPY" or source is None or source[1] in stages, rest


def test_what_is_copied_is_there_and_let_in() -> None:
    """From the context: the tree has it, and .dockerignore does not hold it back; nor anything that the wheel needs."""
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest and rest != ". .":
            for path in rest.split()[:-1]:
                assert (ROOT / path).exists(), path
                assert allowed(path), path
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = [*wheel, "compiling", "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]]
    assert [path for path in needed if not allowed(path)] == []
    assert [path for path in ("tests", ".git", "docs", ".venv", "bench") if allowed(path)] == []


@pytest.mark.parametrize("name", ["image", "build"])
def test_everything_is_installed_by_hash(name: str) -> None:
    """Each package of the locked files has its hashes, is the version that tests run on, and pip demands it."""
    locked = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    tested = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+==[\w.]+)(.*)$", locked, re.MULTILINE)
    assert len(found) > 20
    for pinned, rest in found:
        assert rest.endswith("\\"), pinned
        assert re.search(rf"^{re.escape(pinned)}\b", tested, re.MULTILINE), f"{pinned} is not what tests run on"
    installs = [
        part for word, rest in instructions() if word == "RUN" for part in rest.split("&&") if " install " in part
    ]
    assert [part for part in installs if "--require-hashes" not in part and "--no-index" not in part] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = [re.split(r"[^\w-]", one)[0] for extra in ("kafka", "prometheus", "kubernetes") for one in extras[extra]]
    assert name != "image" or {one for one in wanted if f"{one}==" not in locked} == set()


def test_what_runs_is_small_and_has_no_rights() -> None:
    """A slim image, no command run in it, the user and ports of the manifests, and a command of ours."""
    words = dict(last_stage())
    assert words["FROM"].endswith("-slim")
    assert "RUN" not in words
    pods = [one["spec"]["template"]["spec"] for folder in (FOLDER, PARTS) for one in documents(folder / "relume.yaml")
            if one["kind"] == "Deployment"]  # fmt: skip
    users = {f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" for pod in pods}
    assert users == {words["USER"]}
    ports = {str(port["containerPort"]) for pod in pods for port in pod["containers"][0]["ports"]}
    assert ports == set(shlex.split(words["EXPOSE"]))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert words["ENTRYPOINT"].strip('[]"') in scripts
    assert {pod["containers"][0]["command"][0] for pod in pods} <= set(scripts)
