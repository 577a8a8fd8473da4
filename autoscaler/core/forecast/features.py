"""The evidence of many pasts, as numbers that a logistic mixture weighs (Mattern 2013; the contexts are ours)."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from math import log, log1p
from typing import Final, NamedTuple

from autoscaler.core.forecast.history import Evidence, after_gaps, after_suffixes, evidence, runs

SUFFIXES: Final = (1, 8, 32)
"""Lengths of the last grains that are looked up as they are."""

PERIODS: Final = (60, 30, 20, 15, 12, 10, 7, 6, 5, 4, 3, 2)
"""Grains after which something may come again: people set clocks to most of these."""

WINDOWS: Final = (5, 20, 80, 480)
"""Grains over which it is counted how often it was needed."""

AGE: Final = 0.7
"""Weight of an occasion against the next younger one, among the last few."""

AGES: Final = (10, 30, 90, 200)
"""Grains known at which it is weighed anew: a short past is believed otherwise than a long one."""

_MASKS: Final = {period: sum(1 << at for at in range(period - 1, 1440, period)) for period in PERIODS}

_PARTS: Final = {
    "gaps": 6, "suffixes": 2 * (len(SUFFIXES) - 1), "periods": 2 * len(PERIODS), "windows": len(WINDOWS), "rate": 1,
    "quiet": 1, "level": 1, "below": 1,
}  # fmt: skip
_STARTS: Final = (0, *accumulate(_PARTS.values()))
GROUPS: Final = {name: range(_STARTS[at], _STARTS[at + 1]) for at, name in enumerate(_PARTS)}
"""Where the features stand that belong together. The last of all is constant."""

COUNT: Final = _STARTS[-1] + 1
"""Numbers in a set of features."""

QUIETS: Final = 32
"""Cases by how long it has been quiet and how often it was needed."""

CASES: Final = QUIETS * (len(AGES) + 1)
"""Cases that are weighed each with weights of its own: how long it has been quiet, how much has been seen, and how old
the past is."""


class Features(NamedTuple):
    """What is known before a grain."""

    values: list[float]
    case: int


def features(bits: int, length: int, level: int, below: bool) -> Features:
    """Of a history of `length` grains of whether `level` at once were needed. `below`: whether one fewer was needed in
    the last grain."""
    return _found(bits, length, level > 1, below) if bits else _of_nothing(length, level > 1, below)


@lru_cache(maxsize=4096)
def _of_nothing(length: int, several: bool, below: bool) -> Features:
    """Of what was never needed: the same for all models of the same age."""
    return _found(0, length, several, below)


def _found(bits: int, length: int, several: bool, below: bool) -> Features:
    ones = bits.bit_count()
    base = (ones + 0.4) / (length + 2.0)
    past = runs(bits, length)
    suffixes = after_suffixes(bits, length, SUFFIXES)
    known = (1 << length) - 1 if length else 0
    values: list[float] = []
    for occasions in (*after_gaps(bits, length, past), *suffixes[1:]):
        values += _weighed(evidence(bits, occasions), base)
    same = suffixes[0]
    for period in PERIODS:
        occasions = _MASKS[period] & known
        values += _weighed(evidence(bits, occasions & same if period < 30 else occasions), base)
    for window in WINDOWS:
        span = min(window, length)
        values.append(_stretch(((bits & ((1 << window) - 1)).bit_count() + 0.05) / (span + 0.5)))
    gap = min(past.gap, 240)
    values += (_stretch(base), log1p(gap), float(several), float(below), 1.0)
    seen = 0 if ones < 2 else 1 if ones < 8 else 2 if ones < 40 else 3
    quiet = 4 * min(7, min(gap, 127).bit_length()) + seen
    return Features(values, QUIETS * bisect_right(AGES, length) + quiet)


def _weighed(found: Evidence, base: float) -> tuple[float, float]:
    """How likely it is by all occasions and by the last few, as log odds, shrunk by how few there are."""
    needed, seen, recent = found
    if not seen:
        return 0.0, 0.0
    of_all = (needed + 0.3 * base + 0.02) / (seen + 0.34)
    of_all = 0.001 if of_all < 0.001 else min(of_all, 0.999)
    hits, total = _lately(recent)
    lately = (hits + 0.02) / (total + 0.04)
    lately = 0.01 if lately < 0.01 else min(lately, 0.99)
    return log(of_all / (1.0 - of_all)) * seen / (seen + 2.0), log(lately / (1.0 - lately)) * total / (total + 1.0)


@lru_cache(maxsize=64)
def _lately(recent: tuple[int, ...]) -> tuple[float, float]:
    """The last outcomes, weighed by age: of those needed, and of all."""
    weight, hits, total = 1.0, 0.0, 0.0
    for outcome in recent:
        hits += weight * outcome
        total += weight
        weight *= AGE
    return hits, total


def _stretch(chance: float) -> float:
    """Log odds, within ±6.9."""
    chance = min(max(chance, 0.001), 0.999)
    return log(chance / (1.0 - chance))
