"""The pages that people read hold what they say: YAML validates, command lines parse, paths and links exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import click
import pytest

from bench.catalog import BENCHMARKS
from deploy.cli.commands import LazyGroup
from deploy.cli.main import cli
from deploy.spec.load import load_bytes

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "docs" / "design.md"
"""What is to be built: it may name what is not there yet."""
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {PLAN})
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
_OURS = re.compile(r"(?:docs|tests|events|coldstart|preemption|runtime|autoscaler|deploy|bench)/[\w./-]*|[A-Z]+\.md")
"""Paths of this repository as prose writes them."""
_END = ("|", ">", "&&", ";")


def named(pages: Sequence[Path]) -> pytest.MarkDecorator:
    """One test a page, called after it."""
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """(language, content) of each block of code."""
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        yield match[1], match[2]


def inline(page: Path) -> Iterator[str]:
    """What stands between backticks in prose."""
    for match in _INLINE.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield match[1]


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after ``relume`` of each command line of a block; usage lines, which name parts, are none."""
    for line in text.replace("\\\n", " ").splitlines():
        typed = line.removeprefix("$ ")
        if not re.match(r"(\S+/)?relume ", typed) or "[OPTIONS]" in typed:
            continue
        words = shlex.split(typed, comments=True)
        while words:
            one = list(takewhile(lambda word: word not in _END, words))
            if one and one[0].endswith("relume"):
                yield one[1:]
            words = words[len(one) + 1 :]


def parse(words: Sequence[str], *, whole: bool) -> None:
    """Parse as click would, but touch no file. `whole`: what is required must be there; else parts may be missing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="relume")
    rest = list(words)
    while isinstance(command, LazyGroup) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    given, left, _ = command.make_parser(context).parse_args(list(rest))
    if not command.context_settings.get("ignore_unknown_options"):
        assert not left, f"nobody takes {left}"
    for parameter in command.params:
        value = given.get(parameter.name or "")
        if not isinstance(value, str | int | list | tuple) or value in ((), []):  # click's own mark for "not given"
            assert not (whole and parameter.required), f"{parameter.name} is missing"
        elif not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, value)


@named([page for page in PAGES if any(lang == "yaml" for lang, _ in fences(page))])
def test_declarations_in_pages_validate(page: Path) -> None:
    """Every block with a declaration is one that `relume apply` takes."""
    for language, text in fences(page):
        if language == "yaml" and re.search("^kind: (Model|TrainingJob)$", text, re.MULTILINE):
            loaded = load_bytes(text.encode(), page.name)
            assert loaded.documents
            assert not loaded.problems, [str(problem) for problem in loaded.problems]


@named(EXAMPLES)
def test_examples_validate(page: Path) -> None:
    """Every declaration in docs/examples is one that `relume apply` takes."""
    loaded = load_bytes(page.read_bytes(), page.name)
    assert loaded.documents
    assert not loaded.problems, [str(problem) for problem in loaded.problems]


@named(PAGES)
def test_command_lines_parse(page: Path) -> None:
    """Every `relume …` in blocks is whole and right; in prose its commands and options exist."""
    for _, text in fences(page):
        for words in command_lines(text):
            parse(words, whole=True)
    for text in inline(page):
        if text.startswith("relume ") and "…" not in text:
            parse(shlex.split(text)[1:], whole=False)


@named(PAGES)
def test_paths_and_links_exist(page: Path) -> None:
    """Paths of ours and relative links lead somewhere."""
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [path for path in inline(page) if _OURS.fullmatch(path) and not (ROOT / path).exists()]
    assert not missing


def test_the_checks_can_fail() -> None:
    """A wrong command, option, value and a missing argument are seen."""
    for wrong in (["gett"], ["get", "--bogus"], ["get", "modles"], ["explain"], ["scale", "a", "1", "--for", "soon"]):
        with pytest.raises((click.UsageError, AssertionError)):
            parse(wrong, whole=True)
    blocks = "$ relume get models -o yaml | sed s/a/b/ | relume apply -f -   # as before\nrelume up [OPTIONS]\nls\n"
    assert list(command_lines(blocks)) == [["get", "models", "-o", "yaml"], ["apply", "-f", "-"]]


def test_the_index_of_decisions_is_whole() -> None:
    """Each page is listed by its number and heading, no number is given twice."""
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    assert len({page.name[:4] for page in pages}) == len(pages), "two decisions have one number"
    wanted = []
    for page in pages:
        number, _, title = page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ").partition(". ")
        assert page.name.startswith(f"{int(number):04}-"), f"{page.name} calls itself {number}"
        wanted.append(f"* {number}. [{title}]({page.name})")
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [line for line in index.splitlines() if line.startswith("* ")] == wanted


def test_each_benchmark_is_told_of() -> None:
    """The page of benchmarks says what each of them shows."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.split("## What each one shows")[1].split("\n\n**")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(BENCHMARKS)
