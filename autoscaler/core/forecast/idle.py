"""When something is needed next: the forecast for the coming grain, and the idle times so far for what comes after.

How long quiets lasted that lasted as long as this one already says how long it goes on. Where few of them are known,
the coming grain's chance stands for each grain after it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coldstart.core.tiers import Coming
from events.units import Seconds

HORIZONS: Final = (1, 5, 15, 60, 240)
"""Grains that are looked ahead. What pays by none of them is not worth holding."""

HOUR: Final = HORIZONS.index(60)
"""Which of them is the hour, if a grain is a minute."""

BELIEVED: Final = 2.0
"""So many idle times weigh as much as the coming grain's chance alone. Chosen, as the same number in `features`."""


def gaps(bits: int) -> list[int]:
    """Grains of quiet between each two that were needed, the oldest first; and of the quiet that goes on, last."""
    return [len(quiet) for quiet in f"{bits:b}".split("1")[1:]] if bits else []


def coming(bits: int, chance: float, grain: Seconds) -> tuple[Coming, ...]:
    """For each of `HORIZONS`. `chance`: of the coming grain."""
    known = gaps(bits)
    now, ended = (known[-1], known[:-1]) if known else (0, [])
    rest = [gap - now - 1 for gap in ended if gap > now]  # quiet that is left after the coming grain
    weight = len(rest) / (len(rest) + BELIEVED)
    return tuple(_within(horizon - 1, chance, (rest, weight), grain) for horizon in HORIZONS)


def _within(after: int, chance: float, seen: tuple[Sequence[int], float], grain: Seconds) -> Coming:
    """Within the coming grain and so many `after` it."""
    (rest, weight), quiet = seen, 1.0 - chance
    steady = quiet**after
    lasts = (1.0 - steady) / chance if chance > 1e-9 else float(after)
    came = (1.0 - weight) * (1.0 - steady)
    held = (1.0 - weight) * lasts
    if rest:
        came += weight * sum(left < after for left in rest) / len(rest)
        held += weight * sum(min(after, left + 1) for left in rest) / len(rest)
    return Coming(Seconds(grain * (1 + after)), chance + quiet * came, Seconds(grain * (1.0 + quiet * held)))
