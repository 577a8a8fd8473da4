"""Moves that make what is free of use again: priced, one after the other, never of work that would lose its way.

A move takes one holder from its place and puts it on another that is free now. It is worth its gain (how much F of the
pool falls, in cards that become useful, for as long as that may last) less its price (what the holder loses by
moving). The best move is made on paper first, then the next one on what that leaves, until none is worth it.

Who may move: a replica, for the price of a cold start of it; a training job of one member, for the price of a save and
a restore, and only if it has a committed checkpoint. Training that never committed one, and gangs, stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from events.units import Instant, Seconds
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.mix import Fragmentation, Mix
from preemption.core.gpus.shapes import MILLI, Spot
from preemption.core.gpus.space import Space
from preemption.core.reclaim.pricing import whole_cost
from preemption.core.reclaim.values import Held, Job, ReclaimPolicy

FAR = 1 << 20
"""Thousandths of a card: a cost above that of any place."""


@dataclass(frozen=True, slots=True)
class Movable:
    """Something that may move, and what that costs in A100-seconds."""

    name: str
    held: Held
    price: float


@dataclass(frozen=True, slots=True)
class Move:
    """From where, to where. `gained`: thousandths of cards that become of use; `price` in A100-seconds."""

    name: str
    source: Spot
    target: Spot
    gained: float
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragPolicy:
    """Plain numbers, chosen. `lasts`: for how long a card that became of use is counted, a move's gain is that many
    A100-seconds a card; `least`: thousandths that a move must gain; `most`: moves of one plan."""

    lasts: Seconds = Seconds(1800.0)
    least: int = 100
    most: int = 16


def movable_replica(name: str, held: Held, cold_start: Seconds, worth: float) -> Movable:
    """A replica: it is started anew elsewhere before it goes, so a cold start's seconds of its cards."""
    return Movable(name, held, worth * cold_start)


def movable_job(job: Job, policy: ReclaimPolicy, now: Instant) -> Movable | None:
    """A training job; None for those that must stay: gangs, protected and yielding ones, those without a committed
    checkpoint. It saves before it moves, but a save may fail: so what is at stake is priced as when it yields."""
    if len(job.members) != 1 or job.protected or job.yielding or job.last_commit_at is None:
        return None
    return Movable(job.name, job.members[0], whole_cost(job, policy, now))


def defragment(space: Space, mix: Mix, movable: Sequence[Movable], policy: DefragPolicy) -> list[Move]:
    """The moves that are worth it, in the order in which they must be made."""
    space = space.copy()
    left = {one.name: one for one in movable}
    moves: list[Move] = []
    while len(moves) < policy.most:
        found = [move for _, one in sorted(left.items()) if (move := _best_move(space, mix, one, policy)) is not None]
        best = max(found, key=lambda move: _worth(move, policy), default=None)
        if best is None:
            break
        held = left.pop(best.name).held
        space.give(held.task, held.spot)
        space.take(held.task, best.target)
        moves.append(best)
    return moves


def _worth(move: Move, policy: DefragPolicy) -> float:
    """A100-seconds that a move is worth beyond its price."""
    return move.gained / MILLI * policy.lasts - move.price


def _best_move(space: Space, mix: Mix, one: Movable, policy: DefragPolicy) -> Move | None:
    """The better of its best place on another node and its best on its own; None where neither is worth it."""
    task, source = one.held.task, one.held.spot
    without = space.copy()
    without.give(task, source)
    chooser = Chooser(_only_free_now(without, space, source), Policy.RELUME, mix)
    away = np.zeros(len(space.nodes), dtype=np.int64)
    away[source.node] = FAR
    here = np.full(len(space.nodes), FAR, dtype=np.int64)
    here[source.node] = 0
    before = _total(space, mix)
    moves = []
    for target in {chooser.choose(task, costs=away), chooser.choose(task, costs=here)} - {None}:
        assert target is not None
        after = without.copy()
        after.take(task, target)
        gained = (before - _total(after, mix)) / max(1, mix.total)
        move = Move(one.name, source, target, gained, one.price)
        if gained >= policy.least and _worth(move, policy) > 0:
            moves.append(move)
    return max(moves, key=lambda move: (_worth(move, policy), -move.target.node, move.target.cards), default=None)


def _only_free_now(without: Space, now: Space, source: Spot) -> Space:
    """The space without the holder, in which only what is free already can be taken: both places exist for a while, so
    its own node counts with what is free beside it."""
    seen = without.copy()
    for name in ("cpu", "memory", "free", "state"):
        getattr(seen, name)[source.node] = getattr(now, name)[source.node]
    seen.version[source.node] += 1
    return seen


def _total(space: Space, mix: Mix) -> int:
    return int(np.sum(Fragmentation(space, mix).now()))
