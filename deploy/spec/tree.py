"""YAML to plain values, each with the line it stood on.

YAML 1.2 (`on` is a word, `0o17` a number). JSON is YAML, so it is read too. Bounds keep a hostile file harmless: bytes
before parsing, nodes counted as often as aliases repeat them (an alias bomb is refused, not expanded), and depth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from deploy.spec.problem import SpecProblem, path_text

MAX_BYTES = 1 << 20
"""A file of 1 MiB declares about two thousand models."""
MAX_NODES = 200_000
"""Values of one file, each repetition by an alias counted."""
MAX_DEPTH = 64
"""A declaration is six levels deep; an engine's options may hold JSON of their own."""

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _TAG + name for name in ("map", "seq", "str", "null", "bool", "int", "float", "timestamp", "value", "merge")
)
"""What plain YAML may be; the last three are words to us. Other tags are refused, and nothing is ever constructed."""
_INTEGER = re.compile(r"^[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(slots=True)
class Tree:
    """One document: its value, the line of each path in it, and what was wrong with it as YAML."""

    value: object
    lines: dict[Path, int]
    problems: list[SpecProblem] = field(default_factory=list)


def read_trees(raw: bytes, file: str) -> tuple[list[Tree], list[SpecProblem]]:
    """All documents of a file, empty ones left out; and why the file (or the rest of it) could not be read."""
    if len(raw) > MAX_BYTES:
        rule = f"the file is larger than {MAX_BYTES} bytes"
        return [], [SpecProblem("", None, rule, "split it into several files", file)]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return [], [SpecProblem("", None, "the file is not UTF-8", "save it as UTF-8", file, line)]
    trees: list[Tree] = []
    try:
        for node in _documents(text):
            tree = _Reader(file).read(node)
            if tree.value is not None or tree.problems:
                trees.append(tree)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        rule = f"this is not YAML: {error.problem or error.context or 'it cannot be read'}"
        remedy = "mend the indentation, quotes or brackets here"
        return trees, [SpecProblem("", None, rule, remedy, file, None if mark is None else mark.line + 1)]
    except YAMLError as error:  # the reader's: control characters
        rule = f"this is not YAML: {str(error).splitlines()[0]}"
        return trees, [SpecProblem("", None, rule, "remove the character", file)]
    except RecursionError:
        return trees, [SpecProblem("", None, f"it is nested deeper than {MAX_DEPTH} levels", "flatten it", file)]
    return trees, []


def _documents(text: str) -> Iterator[Node]:
    yield from YAML(typ="safe", pure=True).compose_all(text)


class _TooMuchError(Exception):
    """The file's bounds are passed: reading it ends here."""


class _Reader:
    """Turns the nodes of one document into values, and remembers their lines."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._tree = Tree(None, {})
        self._nodes = 0

    def read(self, root: Node) -> Tree:
        try:
            self._tree.value = self._value(root, ())
        except _TooMuchError as error:
            self._tree.value = None
            self._problem(root, (), None, str(error), "write less, and repeat less with aliases")
        return self._tree

    def _value(self, node: Node, path: Path) -> object:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooMuchError(f"it has more than {MAX_NODES} values")
        if len(path) > MAX_DEPTH:
            raise _TooMuchError(f"it is nested deeper than {MAX_DEPTH} levels")
        self._tree.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _TAGS:
            self._problem(node, path, None, f"the tag {node.tag} is not understood", "leave the tag out")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)  # nodes are of these three kinds
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, object]:
        made: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, path, None, "a key must be a word", "write `name: value`")
                continue
            key = str(key_node.value)
            if key in made:
                self._problem(key_node, (*path, key), None, f"the key {key!r} stands here twice", "keep one of them")
                continue
            self._tree.lines[(*path, key)] = key_node.start_mark.line + 1
            made[key] = self._value(value_node, (*path, key))
        return made

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        text, tag = str(node.value), str(node.tag)
        if tag == _TAG + "str":
            return text
        return self._plain(node, text, path)

    def _plain(self, node: Node, text: str, path: Path) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.match(text):
            if len(text) > 40:
                self._problem(node, path, text, "the number is too large", "put it in quotes if it is text")
                return 0
            return int(text, 0) if text.lstrip("+-")[:2] in ("0o", "0x") else int(text)
        if _FLOAT.match(text) and math.isfinite(float(text)):
            return float(text)
        return text  # dates and everything else stay as written, as they would in JSON

    def _problem(self, node: Node, path: Path, value: object, rule: str, remedy: str) -> None:
        line = node.start_mark.line + 1
        self._tree.problems.append(SpecProblem(path_text(path), value, rule, remedy, self._file, line))
