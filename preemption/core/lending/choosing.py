"""From seats to what the planner sees, and from its plans to new cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from events.types.reclaims import ReclaimLedger, ReclaimVerdict
from events.types.training import MemberGrant, RunState
from events.units import Instant, Seconds
from preemption.core.attempts.attempt import Attempt
from preemption.core.attempts.states import State
from preemption.core.inventory import Holding, need_of
from preemption.core.lending.case import NOBODY, VERDICTS_MOST, Case, Cause, cards_of, gpus_of
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.mirror import Mirror
from preemption.core.lending.planner import Promised
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import JobSeat, Want, holding_name
from preemption.core.lending.shortages import Short
from preemption.core.reclaim.values import Coming, Job, ReclaimPlan, Shortage, Verdict, Victim, Why
from preemption.core.tasks import task_of_need

LEAST_WORTH = 0.01
"""A100s that a job without a GPU counts as: its cores are worth something too (chosen)."""

_NOT_COMING = frozenset({State.CANCELLING, State.LOST})


def planner_job(seat: JobSeat, how: tuple[LendingPolicy, Mirror], now: Instant) -> Job | None:
    """A running job as the planner prices it; None while its declaration cannot be read: then it is left as it is. Its
    members stand in the order of its grant, so that the planner's indices are those."""
    policy, mirror = how
    held = mirror.taken(holding_name(one.member) for one in seat.granted)
    if seat.job is None or not held:
        return None
    seen, declared = seat.seen, seat.job.policy
    elastic = declared.min_members < len(held) == len(seat.granted)
    began = seat.started_at if seen is None or seen.started_at is None else Instant(seen.started_at)
    began = now if began is None else began
    saved = seat.saved
    worth = sum(mirror.worth(Holding(one.placement, need_of(one.resources))) for one in seat.granted)
    return Job(
        name=seat.name, members=held, started_at=began, priority=declared.priority,
        last_commit_at=None if saved is None else Instant(saved.at), worth=max(LEAST_WORTH, worth),
        save=save_of(seat, policy), restore=restore_of(seat, policy), preempted_at=seat.yields(now),
        min_run=declared.min_run, budget_per_hour=declared.budget_per_hour,
        parked=seat.waited if now - began < seat.waited else Seconds(0.0), protected=declared.protected or seat.blocked,
        yielding=bool(seat.holding) or seat.want(now) is not Want.RUN,
        min_members=declared.min_members if elastic else 0,
    )  # fmt: skip


def save_of(seat: JobSeat, policy: LendingPolicy) -> Seconds:
    """How long its next save takes: as long as it usually did, or its newest checkpoint, or the saves of jobs like it;
    by the policy where nothing is known."""
    saved, job = seat.saved, seat.job
    newest = 0.0 if saved is None else saved.seconds
    known = None if job is None else seat.usual.save(job.uid, job.policy.resources, newest)
    return policy.save if known is None else known.seconds


def restore_of(seat: JobSeat, policy: LendingPolicy) -> Seconds:
    """How long it takes to come back: as long as it usually did, or jobs like it."""
    known = None if seat.job is None else seat.usual.back(seat.job.uid, seat.job.policy.resources)
    return policy.restore if known is None else known.seconds


def restart_of(seat: JobSeat, policy: LendingPolicy) -> Seconds:
    """For how long it stands still to be started again: its save and restore."""
    return Seconds(save_of(seat, policy) + restore_of(seat, policy))


def yielding_of(seat: JobSeat, policy: LendingPolicy) -> Seconds:
    """What it costs to give room back once more: it stands still to save and come back, and who wants the room waits
    for the save and for the rest of a reclaim. (A second counts alike for both.)"""
    return Seconds(restart_of(seat, policy) + save_of(seat, policy) + policy.reclaim.yield_time)


def merged(victims: Sequence[Victim]) -> list[Victim]:
    """One victim a job, with all members that are asked of it."""
    by_job: dict[str, Victim] = {}
    for one in victims:
        known = by_job.get(one.job, one)
        members = tuple(sorted({*known.members, *one.members}))
        cost = one.cost if known is one else known.cost + one.cost
        by_job[one.job] = Victim(one.job, members, known.whole or one.whole, cost)
    return [by_job[name] for name in sorted(by_job)]


def promises_of(
    seat: JobSeat, mirror: Mirror, claims: ClaimBook, policy: LendingPolicy, now: Instant
) -> list[Promised]:
    """What a job that was told to yield, or has ended and is not gone yet, will free."""
    promised = []
    if seat.governing is None and seat.seen is not None and seat.seen.state is RunState.ENDED:
        soon = Coming(Instant(now + policy.reclaim.yield_time), mirror.taken(seat.held), yielding=True)
        promised += [Promised("", "", soon)] if soon.freed else []
    for case in seat.holding:
        held = mirror.taken(_freed(seat, case, claims))
        if case.state in _NOT_COMING or not held:
            continue
        at = _expected(seat, case, policy, now)
        shortage = "" if case.state is State.DRAINING_DONE else case.attempt.shortage
        promised.append(Promised(case.id, shortage, Coming(at, held, yielding=True)))
    return promised


_SAVES: Final = frozenset({State.SELECTED, State.NOTIFIED, State.SAVING})


def _expected(seat: JobSeat, case: Case, policy: LendingPolicy, now: Instant) -> Instant:
    """When what the attempt frees is there: a save that lasts longer than it usually does may last until its end."""
    if case.state is State.CLAIMED:
        return now
    ready = now
    if case.state in _SAVES:
        began = next((change.at for change in case.attempt.history if change.state is State.NOTIFIED), now)
        usually = began + save_of(seat, policy)
        ready = Instant(usually if usually > now else max(now, case.attempt.due))
    return Instant(ready + policy.reclaim.yield_time)


def _freed(seat: JobSeat, case: Case, claims: ClaimBook) -> list[str]:
    """The names in the ledger of what an attempt frees."""
    if case.state is State.CLAIMED:
        return list(claims.parts(case.id))
    whole = len(case.members) >= len(seat.granted)
    return sorted(seat.held) if whole else [holding_name(one.member) for one in case.members]


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
    worth = max(LEAST_WORTH, mirror.best_worth(task))
    return Shortage(
        name=short.name, task=task, count=short.count, priority=short.priority, since=short.since, worth=worth
    )


def new_case(
    seat: JobSeat, short: Short | Cause, how: tuple[LendingPolicy, int], now: Instant, *, message: str
) -> Case:  # fmt: skip
    """A new attempt to have a job end its run and give up all its members, for a shortage or for another cause. Its
    notice is due when the trainer has had its declared times."""
    policy, epoch = how
    assert seat.grant is not None
    given = seat.granted
    times = policy.attempt(None if seat.job is None else seat.job.policy)
    identity = f"{seat.name}-{seat.run}-{round(now * 1000):x}"
    while identity == seat.last_attempt or identity in seat.open:
        identity += "b"
    seat.last_attempt = identity
    attempt = Attempt(
        id=identity, job=seat.name, uid=seat.grant.uid, shortage=NOBODY, cards=cards_of(given), epoch=epoch,
        due=Instant(now + times.ack + times.save), state=State.SELECTED, since=now,
        deadline=Instant(now + times.selected),
    )  # fmt: skip
    case = Case(
        attempt=attempt, run=seat.run, members=given, shortage_uid="", shortage_since=now,
        ledger=ReclaimLedger(gpus=gpus_of(seat.granted)), message=message,
    )  # fmt: skip
    if isinstance(short, Cause):
        return replace(case, cause=short)
    return replace(
        case, attempt=replace(attempt, shortage=short.name), shortage_uid=short.uid, shortage_since=short.since,
        ledger=replace(case.ledger, stages={"plan": max(0.0, now - short.since)}),
    )  # fmt: skip


def giving(case: Case, members: tuple[MemberGrant, ...]) -> Case:
    """The case, if the job gives up these members only and goes on with the others."""
    return replace(case, members=members, attempt=replace(case.attempt, cards=cards_of(members)))


def verdicts_of(plan: ReclaimPlan) -> tuple[ReclaimVerdict, ...]:
    """The plan's verdicts, those that were taken first, and no more than a record keeps."""

    def turn(verdict: Verdict) -> tuple[bool, str]:
        return verdict.why not in (Why.TAKEN, Why.SHRUNK), verdict.job

    return tuple(
        ReclaimVerdict(job=one.job, why=one.why, numbers=dict(one.numbers))
        for one in sorted(plan.verdicts, key=turn)[:VERDICTS_MOST]
    )
