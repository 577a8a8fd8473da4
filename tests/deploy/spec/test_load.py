"""Reading files: documents, lines, hostile input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from deploy.spec.load import Loaded, load_bytes, load_files
from deploy.spec.problem import SpecRefused
from deploy.spec.tree import MAX_BYTES

GOOD = """apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: %s}
spec:
  engine: {type: simulated}
"""
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def load(text: str) -> Loaded:
    return load_bytes(text.encode(), "file.yaml")


def test_several_documents_in_a_file() -> None:
    """Documents are read in order, empty ones are passed over."""
    loaded = load("---\n".join((GOOD % "a", "# nothing\n", GOOD % "b")))
    assert [model.metadata.name for model in loaded.models] == ["a", "b"]
    assert loaded.problems == ()


def test_the_examples_are_right() -> None:
    """Every file in docs/examples declares something."""
    loaded = load_files([str(EXAMPLES)], io.BytesIO())
    assert [str(problem) for problem in loaded.problems] == []
    assert [document.metadata.name for document in loaded.documents] == ["qwen", "echo", "default", "smollm2", "tune"]


def test_every_problem_of_every_document_has_its_line() -> None:
    """Problems come by line, and the documents that are right are read all the same."""
    bad = GOOD % "Bad" + "  slot: 3\n"
    loaded = load(GOOD % "a" + "---\n" + bad)
    assert [(problem.file, problem.line, problem.path) for problem in loaded.problems] == [
        ("file.yaml", 9, "metadata.name"),
        ("file.yaml", 12, "spec.slot"),
    ]
    assert [model.metadata.name for model in loaded.models] == ["a"]
    with pytest.raises(SpecRefused, match=r"file\.yaml:12: spec\.slot \(is 3\)"):
        loaded.or_refuse()


def test_a_missing_field_is_told_at_its_parent() -> None:
    """The line of a field that is not there is that of the mapping where it belongs."""
    (problem,) = load((GOOD % "a").replace("{name: a}", "\n  labels: {}")).problems
    assert (problem.line, problem.path) == (3, "metadata.name")


def laughs() -> str:
    """Nine times nine times nine …: a few lines that mean 9^8 values."""
    lines = ["- &a [" + ",".join("x" * 9) + "]"]
    lines += [f"- &{new} [" + ",".join([f"*{old}"] * 9) + "]" for old, new in zip("abcdefg", "bcdefgh", strict=True)]
    return "\n".join(lines)


HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "twice": (GOOD % "a" + "  slots: 3\n  slots: 4\n", "file.yaml:7: spec.slots: the key 'slots' stands here twice"),
    "bracket": ("a: [1, 2\n", "this is not YAML"),
    "colon": ("a: b: c\n", "file.yaml:1: the document: this is not YAML"),
    "alias": ("a: *nobody\n", "undefined alias"),
    "utf8": (b"\xff\xfe", "file.yaml:1: the document: the file is not UTF-8; save it as UTF-8"),
    "utf8-line": (b"a: 1\nb: \xc3\x28\n", "file.yaml:2"),
    "control": ("a: \x07\n", "this is not YAML"),
    "empty": ("", "there is no document in it"),
    "comment": ("# nothing\n", "there is no document in it"),
    "large": ("x" * (MAX_BYTES + 1), f"the file is larger than {MAX_BYTES} bytes"),
    "deep-brackets": ("[" * 1000, "nested deeper"),
    "deep-values": ("a: " + "[" * 70 + "]" * 70, "nested deeper"),
    "endless": ("a: &a [*a]\n", "nested deeper"),
    "laughs": (laughs(), "more than 200000 values"),
    "python-tag": ("a: !!python/object:os.system x\n", "python/object:os.system is not understood"),
    "binary-tag": ("a: !!binary aGk=\n", "the tag tag:yaml.org,2002:binary is not understood"),
    "tag": ("a: !secret {b: 1}\n", "the tag !secret is not understood"),
    "key": ("? [a]\n: b\n", "a key must be a word"),
    "merge": (GOOD % "a" + "  <<: {slots: 3}\n", "there is no field << here"),
    "surrogate": (GOOD % "a" + '  aliases: ["\\ud800"]\n', "file.yaml"),
}


@pytest.mark.parametrize(("text", "said"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_and_broken_files_are_refused_in_words(text: str | bytes, said: str) -> None:
    """Whatever the file holds, the answer is a problem that says what and where; nothing is executed or expanded."""
    raw = text.encode() if isinstance(text, str) else text
    loaded = load_bytes(raw, "file.yaml")
    assert any(said in str(problem) for problem in loaded.problems), [str(problem) for problem in loaded.problems]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("0o17", 15), ("017", 17), ("0x1f", 31), ("1e3", 1000.0), ("~", None),
        ("true", True), ("'true'", "true"), ('"5"', "5"), ("2026-11-29", "2026-11-29"), (".inf", ".inf"),
        (".nan", ".nan"), ("1_000", "1_000"), ("12:30", "12:30"), ("!!str 5", "5"), ("=", "="),
    ],
)  # fmt: skip
def test_words_and_numbers_are_those_of_yaml_1_2(written: str, value: object) -> None:
    """`on` is a word, `0o17` a number; dates and infinities stay as they are written."""
    (problem,) = load(GOOD % "a" + f"  unknown: {written}\n").problems
    assert problem.value == value
    assert type(problem.value) is type(value)


def test_no_end_of_problems_is_shown() -> None:
    """A file with thousands of faults gets the first hundred, in the order of lines, and the number of the rest."""
    loaded = load(GOOD % "a" + "".join(f"  field{index}: 1\n" for index in range(1000)))
    assert [problem.line for problem in loaded.problems] == [*range(6, 106), None]
    assert loaded.problems[-1].rule == "900 more problems are not shown"


def test_json_is_read_too() -> None:
    """JSON is YAML."""
    loaded = load('{"apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": "a"}, '
                  '"spec": {"engine": {"type": "simulated"}, "slots": 2}}')  # fmt: skip
    assert loaded.models[0].spec.slots == 2


def test_standard_input_and_missing_files(tmp_path: Path) -> None:
    """`-` reads standard input; what cannot be read is a problem beside what can."""
    empty = tmp_path / "empty"
    empty.mkdir()
    loaded = load_files(["-", str(tmp_path / "none.yaml"), str(empty)], io.BytesIO((GOOD % "a").encode()))
    assert [model.metadata.name for model in loaded.models] == ["a"]
    assert [problem.rule for problem in loaded.problems] == [
        "there is no such file",
        "there is no .yaml, .yml or .json file in this folder",
    ]


def test_endless_standard_input_ends() -> None:
    """No more than the bound is read."""

    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= MAX_BYTES + 1
            return b"x" * size

    loaded = load_files(["-"], Endless())  # type: ignore[arg-type]  # it reads, which is all that is asked
    assert "larger" in loaded.problems[0].rule


def test_names_and_aliases_are_claimed_once(tmp_path: Path) -> None:
    """Two documents of one name, and an alias of two models, are refused."""
    alias = GOOD % "b" + "  aliases: [a, shared]\n"
    for index, text in enumerate((GOOD % "a", alias, GOOD % "c" + "  aliases: [shared]\n", GOOD % "a")):
        (tmp_path / f"{index}.yaml").write_text(text)
    loaded = load_files([str(tmp_path)], io.BytesIO())
    assert [problem.rule for problem in loaded.problems] == [
        "the model a is declared twice",
        "the alias belongs to model a too",
        "the alias belongs to model b too",
    ]
