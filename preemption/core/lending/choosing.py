"""From seats to what the planner sees, and from its plans to new cases."""

from __future__ import annotations

from collections.abc import Mapping

from events.types.reclaims import ReclaimLedger, ReclaimVerdict
from events.types.training import RunState
from events.units import Instant, Seconds
from preemption.core.attempts.attempt import Attempt
from preemption.core.attempts.states import State
from preemption.core.lending.case import PERSON, VERDICTS_MOST, Case, cards_of, gpus_of
from preemption.core.lending.mirror import Mirror, task_of_need
from preemption.core.lending.planner import Promised
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import JobSeat, Want
from preemption.core.lending.shortages import Short
from preemption.core.reclaim.values import Coming, Held, Job, ReclaimPlan, Shortage, Verdict, Why

LEAST_WORTH = 0.01
"""A100s that a job without a GPU counts as: its cores are worth something too (chosen)."""

_NOT_COMING = frozenset({State.CANCELLING, State.LOST})


def planner_job(seat: JobSeat, held: tuple[Held, ...], how: tuple[LendingPolicy, Mirror], now: Instant) -> Job | None:
    """A running job as the planner prices it; None while its declaration cannot be read: then it is left as it is."""
    policy, mirror = how
    if seat.job is None:
        return None
    seen, declared = seat.seen, seat.job.policy
    began = seat.started_at if seen is None or seen.started_at is None else Instant(seen.started_at)
    began = now if began is None else began
    saved = None if seen is None else seen.checkpoint
    saved = saved if saved is not None and saved.verified else None
    worth = sum(mirror.worth(one.placement) for one in seat.granted)
    parts = gpus_of(seat.granted) / max(1, sum(len(one.placement.gpus) for one in seat.granted))
    return Job(
        name=seat.name, members=held, started_at=began, priority=declared.priority,
        last_commit_at=None if saved is None else Instant(saved.at), worth=max(LEAST_WORTH, worth * parts),
        save=policy.save if saved is None or not saved.seconds else Seconds(saved.seconds), restore=policy.restore,
        preempted_at=seat.yielded, min_run=declared.min_run, budget_per_hour=declared.budget_per_hour,
        parked=seat.waited if now - began < seat.waited else Seconds(0.0), protected=declared.protected,
        yielding=seat.governing is not None or seat.want(now) is not Want.RUN,
    )  # fmt: skip


def promise_of(seat: JobSeat, held: tuple[Held, ...], policy: LendingPolicy, now: Instant) -> Promised | None:
    """What a job that was told to yield, or has ended and is not gone yet, will free; None: it frees nothing."""
    case = seat.governing
    if not held:
        return None
    if case is None:
        ended = seat.seen is not None and seat.seen.state is RunState.ENDED
        soon = Coming(Instant(now + policy.reclaim.yield_time), held, yielding=True)
        return Promised("", "", soon) if ended else None
    if case.state in _NOT_COMING:
        return None
    at = now if case.state is State.CLAIMED else Instant(max(now, case.attempt.due) + policy.reclaim.yield_time)
    shortage = "" if case.state is State.DRAINING_DONE else case.attempt.shortage
    return Promised(case.id, shortage, Coming(at, held, yielding=True))


def drains_of(drains: Mapping[str, Instant], mirror: Mirror, policy: LendingPolicy, now: Instant) -> tuple[Coming, ...]:
    """What draining replicas will free: soon, or, if they take longer, at the bound of a drain."""
    found = []
    for name, since in sorted(drains.items()):
        soon = since + policy.drains
        at = soon if soon > now else max(now, since + policy.drain_bound)
        if held := mirror.taken([name]):
            found.append(Coming(Instant(at), held))
    return tuple(found)


def shortage_value(short: Short, mirror: Mirror) -> Shortage:
    """A shortage as the planner sees it."""
    task = task_of_need(short.need)
    best = mirror.best_worth
    worth = max(LEAST_WORTH, best * (task.gpus * task.milli / 1000))
    return Shortage(
        name=short.name, task=task, count=short.count, priority=short.priority, since=short.since, worth=worth
    )


def new_case(seat: JobSeat, short: Short, how: tuple[LendingPolicy, int], now: Instant, *, message: str) -> Case:
    """A new attempt to have a job yield. Its notice is due when the trainer has had its declared times."""
    policy, epoch = how
    assert seat.grant is not None
    times = policy.attempt(None if seat.job is None else seat.job.policy)
    identity = f"{seat.name}-{seat.run}-{round(now * 1000):x}"
    while identity == seat.last_attempt or identity in seat.open:
        identity += "b"
    seat.last_attempt = identity
    attempt = Attempt(
        id=identity, job=seat.name, uid=seat.grant.uid, shortage=short.name, cards=cards_of(seat.granted), epoch=epoch,
        due=Instant(now + times.ack + times.save), state=State.SELECTED, since=now,
        deadline=Instant(now + times.selected),
    )  # fmt: skip
    plan = {} if short.name == PERSON else {"plan": max(0.0, now - short.since)}
    ledger = ReclaimLedger(gpus=gpus_of(seat.granted), stages=plan)
    return Case(
        attempt=attempt, run=seat.run, members=seat.granted, shortage_uid=short.uid, shortage_since=short.since,
        ledger=ledger, message=message,
    )  # fmt: skip


def verdicts_of(plan: ReclaimPlan) -> tuple[ReclaimVerdict, ...]:
    """The plan's verdicts, those that were taken first, and no more than a record keeps."""

    def turn(verdict: Verdict) -> tuple[bool, str]:
        return verdict.why not in (Why.TAKEN, Why.SHRUNK), verdict.job

    return tuple(
        ReclaimVerdict(job=one.job, why=one.why, numbers=dict(one.numbers))
        for one in sorted(plan.verdicts, key=turn)[:VERDICTS_MOST]
    )
