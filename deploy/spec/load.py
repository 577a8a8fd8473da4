"""Reading declarations from files, folders and standard input: all documents, or all problems of all files at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from deploy.spec.check import check
from deploy.spec.kinds import Document, kind_of
from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused, path_text
from deploy.spec.tree import MAX_BYTES, read_trees

SUFFIXES = (".yaml", ".yml", ".json")
"""What is read of a folder, sorted by name, without the folders in it."""

MAX_PROBLEMS = 100
"""More of one file are counted, not shown."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read: the documents in their order, and every problem. Use the documents only without any."""

    documents: tuple[Document, ...]
    problems: tuple[SpecProblem, ...] = ()

    def or_refuse(self) -> tuple[Document, ...]:
        """The documents; SpecRefused if there is any problem."""
        if self.problems:
            raise SpecRefused(self.problems)
        return self.documents

    @property
    def models(self) -> tuple[Model, ...]:
        """Those documents that declare models."""
        return models_of(self.documents)


def models_of(documents: Sequence[Document]) -> tuple[Model, ...]:
    """Those of these that declare models."""
    return tuple(document for document in documents if isinstance(document, Model))


def load_files(names: Sequence[str], stdin: BinaryIO) -> Loaded:
    """Read files, folders and ``-`` (standard input). Problems with the files themselves are in the answer too."""
    documents: list[Document] = []
    problems: list[SpecProblem] = []
    for name in names:
        for file in _files_of(name):
            read = _read(file, stdin)
            loaded = Loaded((), (read,)) if isinstance(read, SpecProblem) else load_bytes(read, file)
            documents += loaded.documents
            problems += loaded.problems
    return Loaded(tuple(documents), (*problems, *_twice(documents)))


def load_bytes(raw: bytes, file: str, reported: Collection[str] = ()) -> Loaded:
    """Read the documents of one file's content; `file` is its name in messages, `reported` as in `check`."""
    trees, problems = read_trees(raw, file)
    documents: list[Document] = []
    for tree in trees:
        if tree.problems:
            problems += tree.problems
        if tree.value is None:
            continue
        try:
            documents.append(check(tree.value, reported))
        except SpecRefused as refused:
            lines = {path_text(path): line for path, line in tree.lines.items()}
            problems += [_placed(problem, lines, file) for problem in refused.problems]
    if not trees and not problems:
        problems.append(
            SpecProblem(
                "", None, "there is no document in it", "write a model or a training job; see docs/examples", file
            )
        )
    return Loaded(tuple(documents), _bounded(sorted(problems, key=lambda problem: problem.line or 0), file))


def _bounded(problems: Sequence[SpecProblem], file: str) -> tuple[SpecProblem, ...]:
    """At most MAX_PROBLEMS of one file, and how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    rule = f"{len(problems) - MAX_PROBLEMS} more problems are not shown"
    return (*problems[:MAX_PROBLEMS], SpecProblem("", None, rule, "mend these first", file))


def _placed(problem: SpecProblem, lines: Mapping[str, int], file: str) -> SpecProblem:
    """The problem with its file and line; for what is not there, the line of the nearest parent."""
    path = problem.path
    while path not in lines and path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return replace(problem, file=file, line=lines.get(path))


def _files_of(name: str) -> list[str]:
    path = Path(name)
    if name == "-" or not path.is_dir():
        return [name]
    return sorted(str(file) for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file()) or [name]


def _read(file: str, stdin: BinaryIO) -> bytes | SpecProblem:
    """At most one byte more than is allowed, so that endless input ends."""
    try:
        if file == "-":
            return stdin.read(MAX_BYTES + 1)
        with Path(file).open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except IsADirectoryError:
        rule, remedy = "there is no .yaml, .yml or .json file in this folder", "name a file or another folder"
    except FileNotFoundError:
        rule, remedy = "there is no such file", "check the name"
    except OSError as error:
        rule, remedy = f"it cannot be read: {error.strerror}", "check its permissions"
    return SpecProblem("", None, rule, remedy, file)


def _twice(documents: Sequence[Document]) -> list[SpecProblem]:
    """Names and aliases that more than one document claims. Each kind has names of its own; aliases are of models."""
    problems: list[SpecProblem] = []
    seen: set[tuple[str, str]] = set()
    for document in documents:
        name = document.metadata.name
        if (document.kind, name) in seen:
            rule = f"the {kind_of(document).word} {name} is declared twice"
            problems.append(SpecProblem("metadata.name", name, rule, "keep one of the documents"))
        seen.add((document.kind, name))
    return problems + _aliases_twice(models_of(documents))


def _aliases_twice(models: Sequence[Model]) -> list[SpecProblem]:
    problems: list[SpecProblem] = []
    owners = {model.metadata.name: model.metadata.name for model in models}
    for model in models:
        for index, alias in enumerate(model.spec.aliases):
            owner = owners.setdefault(alias, model.metadata.name)
            if owner != model.metadata.name:
                rule = f"the alias belongs to model {owner} too"
                problems.append(SpecProblem(f"spec.aliases[{index}]", alias, rule, "keep it with one model"))
    return problems
