"""How many replicas to hold ready through the next grain of time, by what each of them is expected to cost.

A replica that is held costs the grain, whether it is needed or not. One that is not held costs, if it is needed, a cold
start and the half of the grain that it is there. So replica k is held while

    chance(at least k are needed) > grain / (cost of a cold start + grain / 2).

Each number of replicas at once ("level") has a history, a forecast and weights of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from autoscaler.core.forecast.features import COUNT, features
from autoscaler.core.forecast.history import GRAINS_MOST, pushed
from autoscaler.core.forecast.idle import coming
from autoscaler.core.forecast.mixture import Learned, chance, learn, normal
from coldstart.core.tiers import Coming
from events.kinds import value
from events.types.shared import Count
from events.units import Seconds

GRAIN: Final = Seconds(60.0)
"""The grain of time that the prior was learned with."""

LEVELS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Replicas at once that are forecast: one by one up to eight, and coarser beyond. Between two of these, and beyond the
last, what the last grain needed is held as long as the lower one is."""


@value
class Level:
    """Of one number of replicas at once: in which grains so many were needed, and what that taught.

    `bits`: hexadecimal, the lowest bit is the last grain. `own`, `moved`: see `Learned` (`own` are its weights); four
    bytes a number, low byte first, hexadecimal. Empty, or of other features than today's: nothing was learned yet.
    """

    bits: str = "0"
    own: str = ""
    moved: str = ""


@value
class Past:
    """What is remembered of a model: `grains` known, `needed` in the last, and its levels.

    The last level is one that was never needed (unless all of `LEVELS` were); it stands for all above it, since their
    histories are the same. About 1.3 kB a level as JSON.
    """

    grains: Count = 0
    needed: Count = 0
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
        self._said = [_say(past, at, one) for at, one in enumerate(past.levels)]

    @property
    def past(self) -> Past:
        """What it was made from."""
        return self._past

    def chances(self) -> list[float]:
        """How likely at least so many are needed at once, for each of `LEVELS` up to the first that never was."""
        return [one.chance for one in self._said]

    def hold(self, cold_start_cost: Seconds) -> int:
        """Replicas to hold. `cold_start_cost`: what a cold start is worth, in seconds of one idle replica."""
        return self.above(GRAIN / (cold_start_cost + GRAIN / 2))

    def above(self, least: float) -> int:
        """Replicas of which each is needed in the next grain with a higher chance than this."""
        return self._replicas(lambda at: self._said[at].chance > least)

    def worth(self, keeps: Callable[[Sequence[Coming]], bool]) -> int:
        """Replicas for each of which `keeps` says yes to when it is needed next."""
        return self._replicas(lambda at: keeps(self.coming(at)))

    def coming(self, at: int = 0) -> tuple[Coming, ...]:
        """When as many replicas as stand at this place in `LEVELS` are needed next."""
        return coming(self._said[at].bits, self._said[at].chance, GRAIN)

    def _replicas(self, yes: Callable[[int], bool]) -> int:
        """How many, where a level is asked only after all below it: so a hold is monotone in what `yes` is."""
        levels = 0
        while levels < len(self._said) and yes(levels):
            levels += 1
        if not levels:
            return 0
        below_next = self._past.needed if levels == len(LEVELS) else min(self._past.needed, LEVELS[levels] - 1)
        return max(LEVELS[levels - 1], below_next)

    def after(self, needed: int) -> Past:
        """What is remembered once the grain has ended: `needed` is the most replicas at once."""
        past = self._past
        levels = [_learned(one, needed >= level) for level, one in zip(LEVELS, self._said, strict=False)]
        while len(levels) < len(LEVELS) and needed >= LEVELS[len(levels) - 1]:
            at = len(levels)
            levels.append(_learned(_say(past, at, past.levels[-1]), needed >= LEVELS[at]))
        return Past(
            grains=min(past.grains + 1, GRAINS_MOST),
            needed=needed,
            levels=tuple(levels),
        )


def _say(past: Past, at: int, known: Level) -> _Said:
    """Of the level at this place in `LEVELS`."""
    bits, level = int(known.bits, 16), LEVELS[at]
    below = past.grains > 0 and past.needed >= (LEVELS[at - 1] if at else 0)
    found = features(bits, past.grains, level, below)
    seen, learned = normal(found), _read(known)
    return _Said(bits, seen, found.case, chance(seen, found.case, learned), learned)


def _learned(one: _Said, happened: bool) -> Level:
    known = learn(one.seen, one.chance, happened, one.learned)
    return Level(
        bits=f"{pushed(one.bits, happened):x}",
        own=_FLOATS.pack(*known.weights).hex(),
        moved=_FLOATS.pack(*known.moved).hex(),
    )


def _read(level: Level) -> Learned:
    if len(level.own) != _DIGITS or len(level.moved) != _DIGITS:
        return _NOTHING
    return Learned(
        weights=_FLOATS.unpack(bytes.fromhex(level.own)),
        moved=_FLOATS.unpack(bytes.fromhex(level.moved)),
    )


_FLOATS: Final = Struct(f"<{COUNT}f")
_DIGITS: Final = 2 * _FLOATS.size
_NOTHING: Final = Learned()
