"""What is wrong with a declaration, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_VALUE_CHARS = 80
"""Values longer than this are cut in messages."""


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """One fault: where (`file`, 1-based `line`, `path` such as ``spec.scaling.maxReplicas``), what stood there, which
    rule it breaks, and what to write instead. `value` is JSON-like; None when nothing stood there."""

    path: str
    value: object
    rule: str
    remedy: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        said = "" if self.value is None else f" (is {shown(self.value)})"
        where = f"{place}: " if place else ""
        return f"{where}{self.path or 'the document'}{said}: {self.rule}; {self.remedy}"


class SpecRefused(ValueError):
    """A declaration that cannot be accepted; `problems` holds every fault that was found, at least one."""

    def __init__(self, problems: Sequence[SpecProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def shown(value: object) -> str:
    """`value` as a message quotes it: one line, cut to MAX_VALUE_CHARS."""
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def path_text(loc: Sequence[str | int]) -> str:
    """``spec.aliases[0]`` of ("spec", "aliases", 0)."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
