"""Who leaves its place by itself, and when there is room once they have: for people who ask when what they want to run
could begin. Of most nobody can tell: a job trains until it is done, a model serves for as long as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from events.units import Instant
from preemption.core.gpus.shapes import Task
from preemption.core.gpus.space import Ints, Space
from preemption.core.reclaim.values import Coming, Held

SHOWN: Final = 16
"""Of those that leave at a time that nobody knows, so many are told."""


class Goes(StrEnum):
    """Why somebody leaves its place."""

    ENDED = "has_ended"
    """Its run is over; its cards are not seen empty yet."""
    ENDS = "ends"
    """A person paused, cancelled or deleted it: it saves and ends."""
    YIELDS = "yields"
    """To a shortage, which gets what it frees."""
    DRAINS = "drains"
    IDLES_OUT = "idles_out"
    """Nobody asks it, and its keep-alive runs out."""
    TRAINS = "trains"
    """Until it is done, or has to yield."""
    SERVES = "serves"
    """As long as it is asked, or kept awake."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A model, or ``training/JOB``, what it frees, and when; `at` None: nobody can tell."""

    name: str
    goes: Goes
    freed: tuple[Held, ...]
    at: Instant | None = None

    @property
    def training(self) -> bool:
        """Whether what it holds is lent."""
        return self.goes in (Goes.ENDED, Goes.ENDS, Goes.YIELDS, Goes.TRAINS)

    @property
    def surely(self) -> bool:
        """Whether it was told to go, or is going: the allocator counts on it too."""
        return self.goes in (Goes.ENDED, Goes.ENDS, Goes.DRAINS)


@dataclass(frozen=True, slots=True)
class Expected:
    """When there is room: once all of `leavers` have gone. `at` None: nobody can tell; then they are those that would
    have to go."""

    at: Instant | None
    leavers: tuple[Leaver, ...]


NOBODY: Final = Expected(None, ())
"""There is room now, or nobody could make it by leaving."""


def coming_of(leavers: Sequence[Leaver]) -> tuple[Coming, ...]:
    """What the planner may count on."""
    return tuple(
        Coming(one.at, one.freed, yielding=one.training)
        for one in sorted(leavers, key=_order)
        if one.surely and one.at is not None
    )


def expected(
    leavers: Sequence[Leaver], task: Task, scene: tuple[Space, Ints], enough: Callable[[Space, Ints], bool]
) -> Expected:
    """When there is room by `enough`, which is asked with what is free then, and what training holds of each card.
    `scene`: both as they are now. Only who frees a card counts, where cards are wanted."""
    space, held = scene[0].copy(), scene[1].copy()
    gone: list[Leaver] = []
    able = sorted((one for one in leavers if _of_use(one, task)), key=_order)
    for one in (one for one in able if one.at is not None):
        _leave(one, space, held)
        gone.append(one)
        if enough(space, held):
            return Expected(one.at, tuple(gone))
    return Expected(None, tuple((*gone, *(one for one in able if one.at is None))[:SHOWN]))


def _order(one: Leaver) -> tuple[bool, float, str]:
    return one.at is None, one.at or 0.0, one.name


def _of_use(one: Leaver, task: Task) -> bool:
    return any(bool(held.spot.cards) or not task.gpus for held in one.freed)


def _leave(one: Leaver, space: Space, held: Ints) -> None:
    for part in one.freed:
        space.give(part.task, part.spot)
        if one.training:
            columns = list(part.spot.cards)
            held[part.spot.node, columns] = np.maximum(0, held[part.spot.node, columns] - part.spot.milli)
