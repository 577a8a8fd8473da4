"""Whole gangs: all members are placed, or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from preemption.core.gpus.choosing import Chooser
from preemption.core.gpus.shapes import Spot, Task
from preemption.core.gpus.space import Ints

APART = 50
"""Thousandths of a card that it costs to put a member on a node where none of its gang is: a tie-break between places
that are about equally good, not a wall (chosen)."""


def place_gang(chooser: Chooser, members: Sequence[Task], costs: Ints | None = None) -> tuple[Spot, ...] | None:
    """Places for all members, taken in the chooser's space; None, and nothing taken, when one finds none.

    The largest members go first, since they have the fewest places; the answer is in the order of `members`. `costs` by
    node as in `Chooser.choose`.
    """
    order = sorted(range(len(members)), key=lambda index: (-_size(members[index]), index))
    spots: dict[int, Spot] = {}
    apart = np.full(len(chooser.space.nodes), APART, dtype=np.int64) if len(members) > 1 else None
    for index in order:
        together = None if apart is None or not spots else apart
        spot = chooser.choose(members[index], costs=_sum(costs, together))
        if spot is None:
            for placed, where in spots.items():
                chooser.space.give(members[placed], where)
            return None
        chooser.space.take(members[index], spot)
        spots[index] = spot
        if apart is not None:
            apart[spot.node] = 0
    return tuple(spots[index] for index in range(len(members)))


def _size(task: Task) -> int:
    return task.gpus * task.milli


def _sum(first: Ints | None, second: Ints | None) -> Ints | None:
    if first is None or second is None:
        return second if first is None else first
    return np.asarray(first + second)
