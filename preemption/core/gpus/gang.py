"""Whole gangs: all members are placed, or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from preemption.core.gpus.choosing import Chooser
from preemption.core.gpus.shapes import Spot, Task
from preemption.core.gpus.space import Ints, Space

APART = 50
"""Thousandths of a card that it costs to put a member on a node where none of its gang is, and as many for each part of
the network that is known to be another than that of the nearest of its gang: a tie-break between places that are about
equally good, not a wall (chosen)."""

FAR = 1000
"""More than any two nodes are apart."""


def place_gang(chooser: Chooser, members: Sequence[Task], costs: Ints | None = None) -> tuple[Spot, ...] | None:
    """Places for all members, taken in the chooser's space; None, and nothing taken, when one finds none.

    The largest members go first, since they have the fewest places; the answer is in the order of `members`. `costs` by
    node as in `Chooser.choose`.
    """
    order = sorted(range(len(members)), key=lambda index: (-_size(members[index]), index))
    spots: dict[int, Spot] = {}
    apart = np.full(len(chooser.space.nodes), FAR, dtype=np.int64) if len(members) > 1 else None
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
            apart = np.minimum(apart, distances(chooser.space, spot.node))
    return tuple(spots[index] for index in range(len(members)))


def distances(space: Space, row: int) -> Ints:
    """By node: what it costs to be there instead of on node `row`, in thousandths of a card."""
    other = space.network[row]
    apart = ((space.network != other) & (space.network >= 0) & (other >= 0)).sum(axis=1)
    far = APART * (1 + apart)
    far[row] = 0
    return np.asarray(far)


def _size(task: Task) -> int:
    return task.gpus * task.milli


def _sum(first: Ints | None, second: Ints | None) -> Ints | None:
    if first is None or second is None:
        return second if first is None else first
    return np.asarray(first + second)
