"""Moves against fragmentation: which, at what price, and what they make room for. Nothing is moved. Import it late: it
needs numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deploy.api.gpus_facts import Facts
from deploy.api.gpushapes import GpuMove, GpuMoves, MadeRoom, PlannedPlace
from events.units import Seconds
from preemption.core.gpus.mix import Fragmentation
from preemption.core.gpus.shapes import MILLI, Spot, Task
from preemption.core.gpus.space import Space
from preemption.core.reclaim.defragmenting import DefragPolicy, Movable, Move, defragment, movable_job, movable_replica
from preemption.core.reclaim.prechecking import OF_TRAINING, Pool, task_of
from preemption.core.reclaim.values import Held

COLD_START: Final = Seconds(60.0)
"""What a start is taken for of a model that relume has not seen start."""

KINDS_SHOWN: Final = 8
"""Kinds of work whose room is told: those that come most often."""


def moves_of(facts: Facts) -> GpuMoves:
    """The plan of moves for the pool as it is."""
    pool = facts.pool()
    movable = [*_replicas(facts, pool), *_jobs(facts, pool)]
    moves = defragment(pool.space, pool.mix, movable, DefragPolicy())
    later = pool.space.copy()
    held = {one.name: one.held for one in movable}
    for move in moves:
        task = held[move.name].task
        later.give(task, held[move.name].spot)
        later.take(task, move.target)
    before = Fragmentation(pool.space, pool.mix).ratio()
    return GpuMoves(
        fragmentation_before=round(before, 4), fragmentation_after=round(Fragmentation(later, pool.mix).ratio(), 4),
        moves=[_move(pool, held, move) for move in moves],
        makes_room_for=[
            MadeRoom(needs=needs_of(task), before=int(pool.space.room(task).sum()), after=int(later.room(task).sum()))
            for task in pool.mix.tasks[:KINDS_SHOWN]
        ],
        message="" if moves else _why_none(before, movable),
    )  # fmt: skip


def _replicas(facts: Facts, pool: Pool) -> Iterator[Movable]:
    """Replicas that serve: each can be started elsewhere before it goes."""
    for replica, model, placement, resources in facts.held:
        task = task_of(resources)
        spot = pool.spot(placement, task)
        if model.startswith(OF_TRAINING) or replica not in facts.ready or spot is None or not spot.cards:
            continue
        cold = Seconds(facts.starts.get(model, COLD_START))
        yield movable_replica(replica, Held(task, spot), cold, _worth(facts, pool, task, spot))


def _jobs(facts: Facts, pool: Pool) -> Iterator[Movable]:
    for job in facts.jobs(pool):
        movable = movable_job(job, facts.policy.lending.reclaim, facts.now)
        if movable is not None:
            yield Movable(f"{OF_TRAINING}{job.name}", movable.held, movable.price)


def _worth(facts: Facts, pool: Pool, task: Task, spot: Spot) -> float:
    cards = pool.nodes[spot.node].cards
    part = (MILLI if task.profile else spot.milli) / MILLI
    return sum(facts.policy.worth(cards[column]) * part for column in spot.cards)


def _move(pool: Pool, held: dict[str, Held], move: Move) -> GpuMove:
    return GpuMove(
        name=move.name, source=_place(pool.space, held[move.name].spot), target=_place(pool.space, move.target),
        gained_gpus=round(move.gained / MILLI, 3), price=round(move.price, 3),
        how="noticed, and resumed there" if move.name.startswith(OF_TRAINING) else "started there, then drained here",
    )  # fmt: skip


def _place(space: Space, spot: Spot) -> PlannedPlace:
    node = space.nodes[spot.node]
    return PlannedPlace(node=node.name, gpus=[node.cards[column].id for column in spot.cards])


def needs_of(task: Task) -> str:
    """What a piece of work takes, in a few words."""
    gpus = task.profile or (f"{task.milli / MILLI:g} GPU" if task.milli < MILLI else f"{task.gpus} GPU")
    if task.gpu_bytes:
        gpus = f"{task.gpu_bytes / (1 << 30):.3g}Gi of a GPU"
    cores, memory = f"{task.cpu_milli / MILLI:g} CPU", f"{task.memory_bytes / (1 << 30):.3g}Gi"
    return f"{gpus if task.gpus else 'no GPU'}, {cores}, {memory}"


def _why_none(before: float, movable: list[Movable]) -> str:
    if before <= 0:
        return "nothing that is free is of no use: there is nothing to gain"
    if not movable:
        return "nothing that holds a GPU may be moved: replicas that start or drain, gangs, jobs without a checkpoint"
    return "no move gains more than it costs within half an hour"
