"""Who must yield for what is short: the planner is asked, and its plans become cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from events.names import training_key
from events.units import Instant
from preemption.core.lending.case import Case
from preemption.core.lending.choosing import (
    drains_of,
    giving,
    merged,
    new_case,
    planner_job,
    promises_of,
    shortage_value,
    verdicts_of,
)
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.mirror import Mirror
from preemption.core.lending.planner import Board, Planned, Promised, needless, plan_shortages, retry_at
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import JobSeat
from preemption.core.lending.shortages import Short, tell_plan
from preemption.core.lending.starting import Room
from preemption.core.reclaim.values import Job, Outcome
from preemption.core.seat import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a decision looks at. `drains`: replicas that drain, and since when; `opened`: jobs whose attempts have not
    ended; `gangs`: shortages of jobs."""

    seats: Mapping[str, JobSeat]
    mirror: Mirror
    claims: ClaimBook
    policy: LendingPolicy
    epoch: int
    drains: Mapping[str, Instant]
    opened: frozenset[str]
    gangs: Mapping[str, Short]
    refusals: Mapping[str, Told]
    """As told last: they stand for shortages that wait for another one."""

    def holding(self) -> list[Case]:
        """All attempts that hold cards."""
        return holding(self.seats, self.opened)


@dataclass(frozen=True, slots=True)
class Asked:
    """New cases; attempts that nobody needs any more; by shortage, why nobody yields; when that may come out otherwise
    though nothing happens."""

    cases: tuple[Case, ...] = ()
    needless: tuple[str, ...] = ()
    refusals: Mapping[str, Told] = field(default_factory=dict)
    again_at: Instant | None = None


def holding(seats: Mapping[str, JobSeat], opened: frozenset[str] | set[str]) -> list[Case]:
    """All attempts that hold cards, of jobs that have attempts which have not ended."""
    return [case for name in sorted(opened) for case in seats[name].holding]


def find_gangs(sight: Sight, waiting: Sequence[JobSeat], now: Instant) -> dict[str, Short]:
    """Waiting jobs for which others of lower priority could yield."""
    served = {case.attempt.shortage for case in sight.holding()}
    lowest = min((seat.priority for seat in sight.seats.values() if seat.alive), default=None) if waiting else None
    gangs = {}
    for seat in waiting:
        job = seat.job
        name = training_key(seat.name)
        able = job is not None and lowest is not None and job.policy.priority > lowest and seat.fits_since is None
        able = able and seat.spent_until(now) is None
        if job is None or not (able or name in served):
            continue
        gangs[name] = Short(
            name=name, uid=job.uid, resources=job.policy.resources, count=job.policy.min_members, gang=True,
            priority=job.policy.priority, since=seat.waiting_since or now, kinds=frozenset(),
        )  # fmt: skip
    return gangs


def ask_to_yield(sight: Sight, shorts: Mapping[str, Short], room: Room, now: Instant) -> Asked:
    """Who must yield, and whom nobody needs any more."""
    if not shorts or not any(seat.job is not None and seat.granted for seat in sight.seats.values()):
        return Asked()
    blocked = frozenset(name for name, short in shorts.items() if short.blocked)
    board = _board(sight, room, blocked, now)
    values = [shortage_value(short, sight.mirror) for short in shorts.values()]
    unneeded = needless(board, values)
    running = {job.name for job in board.jobs}
    spent = sum(seat.recent(now) for name, seat in sight.seats.items() if seat.yielded and name not in running)
    reclaim = sight.policy.reclaim
    planned = plan_shortages(board, values, replace(reclaim, pool_budget=reclaim.pool_budget - spent), now)
    cases = list[Case]()
    refusals = {name: sight.refusals[name] for name in blocked if name in sight.refusals}
    for one in planned:
        name = one.shortage.name
        if one.idle:
            unneeded += [case.id for case in sight.holding() if case.attempt.shortage == name]
        plan = one.plan
        if plan is not None and plan.outcome in (Outcome.INFEASIBLE, Outcome.COMING):
            told = tell_plan(plan, now)
            refusals |= {} if told is None else {name: told}
        cases += _cases(sight, one, shorts[name], now)
    return Asked(tuple(cases), tuple(unneeded), refusals, retry_at(planned, now))


def _cases(sight: Sight, one: Planned, short: Short, now: Instant) -> list[Case]:
    """The cases that a plan comes to."""
    plan, cases = one.plan, list[Case]()
    if plan is None or plan.outcome is not Outcome.RECLAIMS:
        return cases
    verdicts = verdicts_of(plan)
    who = f"{'job' if short.gang else 'model'} {short.name.removeprefix('training/')}"
    for victim in merged(plan.victims):
        seat, how = sight.seats[victim.job], (sight.policy, sight.epoch)
        case = new_case(seat, short, how, now, message=f"{who} needs its cards")
        seat.room_ended(seat.room_since, max(short.since, seat.room_since or now))
        if not victim.whole:
            given, count = tuple(seat.granted[index] for index in victim.members), len(seat.granted)
            case = replace(giving(case, given), message=f"{who} needs {len(given)} of its {count} members' cards")
        cases.append(case.priced(victim.cost, verdicts))
    return cases


def _board(sight: Sight, room: Room, blocked: frozenset[str], now: Instant) -> Board:
    space = sight.mirror.sync()
    jobs: list[Job] = []
    promised: list[Promised] = []
    for _, seat in sorted(sight.seats.items()):
        if seat.alive and (job := planner_job(seat, (sight.policy, sight.mirror), now)) is not None:
            jobs.append(job)
        promised += promises_of(seat, sight.mirror, sight.claims, sight.policy, now)
    return Board(
        space=space, jobs=tuple(jobs), promised=tuple(promised), mix=room.mix,
        coming=drains_of(sight.drains, sight.mirror, sight.policy, now), gangs=frozenset(sight.gangs),
        blocked=blocked, for_training=room.seen,
    )  # fmt: skip
