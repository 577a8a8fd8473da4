"""Running training jobs as the planner prices them, for answers that are worked out from the boards.

The allocator knows more (`preemption.core.lending`): how long a job waited for cards in all, and what is on its way. So
its own plan may differ; the reasons are of the same kind. Import it late: the planner needs numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.api.training_board import JobBoard, TrainingBoard
from deploy.api.training_facts import YIELDED_STATES
from events.types.reclaims import ReclaimChanged
from events.types.training import MemberGrant, RunState, TrainingDeclared, TrainingGranted
from events.units import Instant
from preemption.core.gpus.shapes import MILLI
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import Pool, task_of
from preemption.core.reclaim.values import Held, Job
from preemption.core.training import TrainingPolicy
from preemption.declared_training import read_training


def victims_of(board: TrainingBoard, pool: Pool, policy: PoolPolicy, now: Instant) -> tuple[Job, ...]:
    """Every job that runs and whose declaration can be read, by name."""
    found = (_job(board, (pool, policy), board.entry(name), now) for name in board.names())
    return tuple(job for job in found if job is not None)


def _job(board: TrainingBoard, how: tuple[Pool, PoolPolicy], entry: JobBoard | None, now: Instant) -> Job | None:
    pool, settings = how
    if entry is None or entry.declared is None or entry.granted is None or entry.granted.uid != entry.declared.uid:
        return None
    declared, granted = entry.declared, entry.granted
    members = _held(pool, granted.members)
    policy = _policy(declared)
    if policy is None or not members:
        return None
    seen = entry.observed if entry.observed and entry.observed.run == granted.run else None
    saved = seen.checkpoint if seen and seen.checkpoint and seen.checkpoint.verified else None
    costs, usual = settings.lending, board.usual
    save = usual.save(declared.uid, policy.resources, 0.0 if saved is None else saved.seconds)
    back = usual.back(declared.uid, policy.resources)
    return Job(
        name=declared.job, members=members, priority=policy.priority, worth=_worth(how, granted.members),
        started_at=now if seen is None or seen.started_at is None else Instant(seen.started_at),
        last_commit_at=None if saved is None else Instant(saved.at),
        restore=costs.restore if back is None else back.seconds, save=costs.save if save is None else save.seconds,
        preempted_at=_yielded(board.reclaims(), declared.uid), min_run=policy.min_run,
        budget_per_hour=policy.budget_per_hour, protected=policy.protected,
        yielding=_leaves(declared, granted) or (seen is not None and seen.state is RunState.ENDED),
        min_members=policy.min_members if policy.min_members < len(members) == len(granted.members) else 0,
    )  # fmt: skip


def _policy(declared: TrainingDeclared) -> TrainingPolicy | None:
    """None: another release wrote it, and it is left as it is."""
    try:
        return read_training(declared)
    except ValueError:
        return None


def _leaves(declared: TrainingDeclared, granted: TrainingGranted) -> bool:
    """Whether it gives its cards back anyway."""
    return declared.paused or declared.cancelled or declared.deleted or granted.notice is not None


def _yielded(reclaims: Iterable[ReclaimChanged], uid: str) -> tuple[Instant, ...]:
    """When a job had to give its cards away for a shortage."""
    times = (
        next((step.at for step in one.history if step.state in YIELDED_STATES), None)
        for one in reclaims
        if one.job_uid == uid and one.shortage
    )
    return tuple(sorted(Instant(at) for at in times if at is not None))


def _held(pool: Pool, members: Sequence[MemberGrant]) -> tuple[Held, ...]:
    """What the members hold, in the pool's own indices; what is on a node that is not known is left out."""
    held = []
    for member in members:
        task, row = task_of(member.resources), pool.space.index.get(member.placement.node)
        if row is None:
            continue
        columns = {spec.id: column for column, spec in enumerate(pool.space.nodes[row].cards)}
        if all(card in columns for card in member.placement.gpus):
            cards = tuple(columns[card] for card in member.placement.gpus)
            held.append(Held(task, pool.space.held_spot(row, cards, task)))
    return tuple(held)


def _worth(how: tuple[Pool, PoolPolicy], members: Sequence[MemberGrant]) -> float:
    """What the cards are worth together, in A100s."""
    pool, settings = how
    cards = {(node.node, card.id): card for node in pool.nodes for card in node.cards}
    total = 0.0
    for member in members:
        task = task_of(member.resources)
        spot = pool.spot(member.placement, task)
        share = 1.0 if spot is None or task.profile else spot.milli / MILLI
        places = ((member.placement.node, card) for card in member.placement.gpus)
        total += sum((settings.worth(cards[place]) if place in cards else 1.0) * share for place in places)
    return total
