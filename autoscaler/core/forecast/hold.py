"""How many replicas to hold ready through the next grain of time, by what each of them is expected to cost.

A replica that is held costs the grain, whether it is needed or not. One that is not held costs, if it is needed, a cold
start and the half of the grain that it is there. So replica k is held while

    chance(at least k are needed) > grain / (cost of a cold start + grain / 2).

Each number of replicas at once ("level") has a history, a forecast and weights of its own.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from autoscaler.core.forecast.features import COUNT, Around, features
from autoscaler.core.forecast.history import GRAINS_MOST, pushed
from autoscaler.core.forecast.mixture import Learned, chance, learn, normal
from events.kinds import value
from events.types.shared import Count
from events.units import Seconds

GRAIN: Final = Seconds(60.0)
"""The grain of time that the prior was learned with."""

LEVELS_MOST: Final = 8
"""Replicas at once that are forecast one by one. Beyond them, what the last grain needed is held as long as the last of
these is."""


@value
class Level:
    """Of one number of replicas at once: in which grains so many were needed, and what that taught.

    `bits`: hexadecimal, the lowest bit is the last grain. `weights`, `moved`: see `Learned`; four bytes a number, low
    byte first, hexadecimal. Empty: nothing was learned yet.
    """

    bits: str = "0"
    weights: str = ""
    moved: str = ""


@value
class Past:
    """What is remembered of a model: `grains` known, `needed` in the last and in the one before, and its levels.

    The last level is one that was never needed (unless `LEVELS_MOST` were); it stands for all above it, since their
    histories are the same. About 1.3 kB a level as JSON.
    """

    grains: Count = 0
    needed: Count = 0
    needed_before: Count = 0
    levels: tuple[Level, ...] = (Level(),)


class _Said(NamedTuple):
    """A forecast of one level, with what it was made from: learning needs both."""

    bits: int
    seen: list[float]
    case: int
    chance: float
    learned: Learned


class Outlook:
    """What is expected of the next grain. Made once from a past, and asked for any price; `after` goes on from it."""

    __slots__ = ("_past", "_said")

    def __init__(self, past: Past) -> None:
        self._past = past
        self._said = [_say(past, level, one) for level, one in enumerate(past.levels, 1)]

    @property
    def past(self) -> Past:
        """What it was made from."""
        return self._past

    def chances(self) -> list[float]:
        """How likely at least 1, 2, … replicas are needed at once: up to one more than ever were, and `LEVELS_MOST`."""
        return [one.chance for one in self._said]

    def hold(self, cold_start_cost: Seconds) -> int:
        """Replicas to hold. `cold_start_cost`: what a cold start is worth, in seconds of one idle replica."""
        least = GRAIN / (cold_start_cost + GRAIN / 2)
        held = 0
        while held < len(self._said) and self._said[held].chance > least:
            held += 1
        return max(held, self._past.needed) if held == LEVELS_MOST else held

    def after(self, needed: int) -> Past:
        """What is remembered once the grain has ended: `needed` is the most replicas at once."""
        past = self._past
        levels = [_learned(one, needed >= level) for level, one in enumerate(self._said, 1)]
        while len(levels) < LEVELS_MOST and needed >= len(levels):
            level = len(levels) + 1
            levels.append(_learned(_say(past, level, past.levels[-1]), needed >= level))
        return Past(
            grains=min(past.grains + 1, GRAINS_MOST),
            needed=needed,
            needed_before=past.needed,
            levels=tuple(levels),
        )


def _say(past: Past, level: int, known: Level) -> _Said:
    bits = int(known.bits, 16)
    below = past.grains > 0 and past.needed >= level - 1
    found = features(bits, past.grains, level, Around(below, past.needed > level, past.needed_before > level))
    seen, learned = normal(found), _read(known)
    return _Said(bits, seen, found.case, chance(seen, found.case, learned), learned)


def _learned(one: _Said, happened: bool) -> Level:
    known = learn(one.seen, one.chance, happened, one.learned)
    return Level(
        bits=f"{pushed(one.bits, happened):x}",
        weights=_FLOATS.pack(*known.weights).hex(),
        moved=_FLOATS.pack(*known.moved).hex(),
    )


def _read(level: Level) -> Learned:
    if not level.weights:
        return _NOTHING
    return Learned(
        weights=_FLOATS.unpack(bytes.fromhex(level.weights)),
        moved=_FLOATS.unpack(bytes.fromhex(level.moved)),
    )


_FLOATS: Final = Struct(f"<{COUNT}f")
_NOTHING: Final = Learned()
