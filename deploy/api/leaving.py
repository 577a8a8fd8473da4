"""Who leaves its place, and when, as far as the boards tell: jobs that end, replicas that drain, models that idle out.

Who yields to a shortage is not here: what it frees is that shortage's. Import it late: the planner needs numpy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deploy.api.training_board import TrainingBoard
from events.types.grants import GrantDecided
from events.types.reclaims import ReclaimChanged
from events.types.training import RunState
from events.units import Instant
from preemption.core.attempts.states import HOLDS_CARDS, State
from preemption.core.lending.case import Cause
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.leaving import Goes, Leaver
from preemption.core.reclaim.prechecking import OF_TRAINING, Pool, task_of
from preemption.core.reclaim.values import Held

_STAYS: Final = frozenset({State.CANCELLING, State.LOST, State.CLAIMED})
_SAVES: Final = frozenset({State.SELECTED, State.NOTIFIED, State.SAVING})


def leavers_of(
    pool: Pool, training: TrainingBoard, models: tuple[Mapping[str, GrantDecided], Mapping[str, Instant]],
    policy: LendingPolicy, now: Instant,
) -> tuple[Leaver, ...]:  # fmt: skip
    """Everybody who holds something. `models`: their grants, and when those that nobody asks go to zero."""
    held = _held(pool)
    ends = _ends(training, policy, now)
    return (*_jobs(held, ends), *_models(held, models, policy, now))


def _held(pool: Pool) -> Mapping[str, list[tuple[str, Held]]]:
    """What each model and job holds, by replica or member."""
    found: dict[str, list[tuple[str, Held]]] = defaultdict(list)
    for holder in pool.holders:
        task = task_of(holder.resources)
        if (spot := pool.spot(holder.placement, task)) is not None:
            found[holder.model].append((holder.replica, Held(task, spot)))
    return found


def _ends(training: TrainingBoard, policy: LendingPolicy, now: Instant) -> Mapping[str, tuple[Goes, Instant | None]]:
    """Of each job that gives its cards up for nobody in particular: how, and when. Of those that yield: nothing, at a
    time that nobody knows."""
    ends: dict[str, tuple[Goes, Instant | None]] = {}
    for job, seen in training.observations().items():
        if seen.state is RunState.ENDED and seen.empty_at is None:
            ends[job] = Goes.ENDED, Instant(now + policy.reclaim.yield_time)
    for one in training.reclaims():
        if not one.ended and one.state in HOLDS_CARDS and one.state not in _STAYS and one.cause != Cause.GROWS:
            yields = Goes.YIELDS, None
            ends[one.job] = yields if one.shortage else (Goes.ENDS, _due(one, training, policy, now))
    return ends


def _due(one: ReclaimChanged, training: TrainingBoard, policy: LendingPolicy, now: Instant) -> Instant:
    """When its cards are seen empty, if its save takes as long as it usually does; else by its deadline."""
    ready = now
    if one.state in _SAVES:
        takes = one.held[0].resources if one.held else None
        known = training.usual.save(one.job_uid, takes)
        usually = one.since + (policy.save if known is None else known.seconds)
        ready = Instant(usually if usually > now else max(now, one.due))
    return Instant(ready + policy.reclaim.yield_time)


def _jobs(
    held: Mapping[str, Sequence[tuple[str, Held]]], ends: Mapping[str, tuple[Goes, Instant | None]]
) -> Iterable[Leaver]:
    for name, members in held.items():
        if name.startswith(OF_TRAINING):
            goes, at = ends.get(name.removeprefix(OF_TRAINING), (Goes.TRAINS, None))
            yield Leaver(name, goes, tuple(part for _, part in members), at)


def _models(
    held: Mapping[str, Sequence[tuple[str, Held]]],
    models: tuple[Mapping[str, GrantDecided], Mapping[str, Instant]],
    policy: LendingPolicy,
    now: Instant,
) -> Iterable[Leaver]:
    grants, idle = models
    for name, replicas in held.items():
        if name.startswith(OF_TRAINING):
            continue
        grant = grants.get(name)
        draining = {one.replica for one in grant.replicas if one.drain} if grant is not None else set()
        going = tuple(part for replica, part in replicas if replica in draining)
        staying = tuple(part for replica, part in replicas if replica not in draining)
        if going:
            yield Leaver(name, Goes.DRAINS, going, Instant(now + policy.drains))
        if staying:
            at = idle.get(name)
            goes = Goes.SERVES if at is None else Goes.IDLES_OUT
            yield Leaver(name, goes, staying, None if at is None else Instant(max(now, at) + policy.drains))
