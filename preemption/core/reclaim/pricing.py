"""What it costs that a training job yields, who may be asked at all, and whose turn comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from events.units import Instant, Seconds
from preemption.core.reclaim.values import Job, ReclaimPolicy, Shortage, Verdict, Why

HOUR = Seconds(3600.0)


def at_stake(job: Job, now: Instant) -> Seconds:
    """Seconds of work since the last committed checkpoint. Who never reported one has all since its start at stake:
    else those that do not report would win by it."""
    since = job.started_at if job.last_commit_at is None else max(job.last_commit_at, job.started_at)
    return Seconds(max(0.0, now - since))


def recent(job: Job, within: Seconds, now: Instant) -> int:
    """How often it had to yield within so long."""
    return sum(now - at < within for at in job.preempted_at)


def whole_cost(job: Job, policy: ReclaimPolicy, now: Instant) -> float:
    """A100-seconds that it costs when the whole job yields."""
    seconds = at_stake(job, now) + job.save + job.restore + policy.thrash * recent(job, policy.window, now)
    return job.worth * seconds


def elastic_cost(job: Job, taken: int, policy: ReclaimPolicy, now: Instant) -> float:
    """A100-seconds that it costs when so many members of an elastic job yield, and the others go on. All of them save
    and are started again, so it costs what it costs when the whole job yields; and `shrink` for what does not go on."""
    return whole_cost(job, policy, now) + job.worth * taken / max(1, len(job.members)) * policy.shrink


def aged_priority(job: Job, policy: ReclaimPolicy) -> int:
    """Its priority, raised by how long it waited for cards in all."""
    return job.priority + min(policy.most_boost, int(job.parked // policy.age_every))


def refusal(job: Job, shortage: Shortage, policy: ReclaimPolicy, now: Instant) -> Verdict | None:
    """Why `job` must not be asked to yield for `shortage`; None: it may be."""
    ran, priority = now - job.started_at, aged_priority(job, policy)
    since = now - max(job.preempted_at, default=Instant(-math.inf))
    often = recent(job, HOUR, now)
    rules: tuple[tuple[bool, Why, dict[str, float]], ...] = (
        (job.yielding, Why.YIELDING, {}),
        (job.protected, Why.PROTECTED, {}),
        (priority >= shortage.priority, Why.PRIORITY, {"priority": priority, "below": shortage.priority}),
        (ran < job.min_run, Why.TOO_YOUNG, {"ran": ran, "minimum": job.min_run}),
        (since < policy.cool_down, Why.COOLS_DOWN, {"since": since, "coolDown": policy.cool_down}),
        (often >= job.budget_per_hour, Why.BUDGET, {"preemptions": often, "perHour": job.budget_per_hour}),
    )
    return next((Verdict(job.name, why, numbers) for broken, why, numbers in rules if broken), None)


def in_turn(shortages: Iterable[Shortage]) -> list[Shortage]:
    """Who is served first: the higher priority, then the older, then by name. The order is total."""
    return sorted(shortages, key=lambda one: (-one.priority, one.since, one.name))
