"""What a benchmark hands back: figures with their yardsticks, targets and verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a figure stands to its target."""

    GOAL = "goal reached"
    REACHED = "reached"
    MISSED = "missed"
    NO_TARGET = "-"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Target:
    """The most that may come out (design §11). `of_ratio`: the ratio is judged, else the measured value.

    `gate` must be reached, `goal` is where it should go; with one number only, that is the gate.
    """

    gate: float
    goal: float | None = None
    of_ratio: bool = False

    def judge(self, value: float) -> Verdict:
        """The verdict on the value that the target is about."""
        if value > self.gate:
            return Verdict.MISSED
        return Verdict.GOAL if self.goal is not None and value <= self.goal else Verdict.REACHED

    def words(self, unit: str) -> str:
        """For the table."""
        suffix = "x" if self.of_ratio else f" {unit}"
        text = f"<= {_number(self.gate)}{suffix}"
        return text if self.goal is None else f"{text} (goal {_number(self.goal)}{suffix})"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `low` and `high`: smallest and largest of the rounds; `why`: when it was not measured,
    else a remark. Values are None when they are not known."""

    what: str
    unit: str = ""
    measured: float | None = None
    yardstick: str = ""
    beside: float | None = None
    target: Target | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured by yardstick."""
        if self.measured is None or self.beside is None or self.beside <= 0:
            return None
        return self.measured / self.beside

    @property
    def verdict(self) -> Verdict:
        """How it stands to its target."""
        if self.measured is None:
            return Verdict.NOT_MEASURED
        if self.target is None:
            return Verdict.NO_TARGET
        judged = self.ratio if self.target.of_ratio else self.measured
        return Verdict.NOT_MEASURED if judged is None else self.target.judge(judged)

    def cells(self) -> tuple[str, ...]:
        """What, measured, yardstick, ratio, target, verdict."""
        measured = "" if self.measured is None else f"{_number(self.measured)} {self.unit}".rstrip()
        if self.low is not None and self.high is not None:
            measured += f" [{_number(self.low)}..{_number(self.high)}]"
        beside = self.yardstick if self.beside is None else f"{self.yardstick}: {_number(self.beside)} {self.unit}"
        ratio = "" if self.ratio is None else f"{_number(self.ratio)}x"
        target = "" if self.target is None else self.target.words(self.unit)
        return self.what, measured, beside.rstrip(), ratio, target, str(self.verdict)

    def as_json(self) -> dict[str, object]:
        """For machines."""
        target = self.target
        return {
            "what": self.what, "unit": self.unit, "measured": self.measured, "low": self.low, "high": self.high,
            "yardstick": self.yardstick, "beside": self.beside, "ratio": self.ratio,
            "gate": None if target is None else target.gate, "goal": None if target is None else target.goal,
            "targetIsRatio": target is not None and target.of_ratio, "verdict": str(self.verdict), "why": self.why,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. `quick`: tiny sizes that show that it works, whose numbers mean little.

    `seconds` is the length of one timed stretch, `rounds` how often each contender gets one.
    """

    quick: bool = False
    seconds: float = 2.0
    rounds: int = 3

    def size(self, full: int, quick: int) -> int:
        """A size, by the effort."""
        return quick if self.quick else full


def percentile(values: Sequence[float], rank: float) -> float:
    """The value below which `rank` (0..1) of them lie: the nearest rank. Raises ValueError without values."""
    if not values:
        raise ValueError("no values, so no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def _number(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
