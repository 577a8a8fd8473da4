"""Jobs that wait to be started: since when, whose turn it is, how long there must have been room, and why not yet."""

from __future__ import annotations

from events.names import training_key
from events.units import Instant, Seconds
from preemption.core.inventory import need_of
from preemption.core.lending.choosing import yielding_of
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.granting import Because
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import JobSeat, holdings_of
from preemption.core.lending.starting import Room, Waiting
from preemption.core.limits import tally_of
from preemption.core.placement import Lack


def waiting_job(seat: JobSeat, claims: ClaimBook, policy: LendingPolicy, now: Instant) -> Waiting:
    """A job that waits to be started, or that could have more members, as it is placed."""
    assert seat.job is not None
    declared, reclaim = seat.job.policy, policy.reclaim
    boost = min(reclaim.most_boost, int(_waited(seat, now) // reclaim.age_every))
    claimed = [holding for attempt in claims.attempts(training_key(seat.name))
               for holding in claims.parts(attempt).values()]  # fmt: skip
    kept = seat.granted if seat.alive else seat.kept
    return Waiting(
        seat=seat, members=declared.members, least=declared.min_members, resources=declared.resources,
        priority=declared.priority + boost, aged=boost > 0, claimed=tuple(claimed),
        kept=tuple(holdings_of(kept).values()),
    )  # fmt: skip


def turn(one: Waiting, now: Instant) -> tuple[bool, int, float, Instant, str]:
    """Who is started first: who could give back what it gets; the higher priority, raised by age; then who has waited
    longest; then by name."""
    seat = one.seat
    assert seat.job is not None
    spent = seat.spent_until(now) is not None and not one.kept
    return spent, -one.priority, seat.waiting_since or now, seat.job.at, seat.name


def due_of(seat: JobSeat, policy: LendingPolicy, now: Instant) -> tuple[Instant, Because, str]:
    """When a job is started that there is room for, and why not before."""
    began, lasted = seat.fits_since or now, seat.lasted(now)
    settles = began + settles_of(seat, policy, now)
    spent = seat.spent_until(now)
    if spent is None:
        return Instant(settles), Because.SETTLES, "there is room; it is waited for whether that lasts"
    lasts = began + policy.outlasts(max(lasted, default=None))
    words = "there is room, but it has spent its budget and could not give it back"
    return Instant(max(settles, min(spent, lasts))), Because.SPENT, words


def settles_of(seat: JobSeat, policy: LendingPolicy, now: Instant) -> Seconds:
    """How long room must last for a job that had to yield lately."""
    lasted = seat.lasted(now)
    usual = lasted[len(lasted) // 2] if len(lasted) > 1 else None
    return policy.settles(seat.recent(now), _waited(seat, now), yielding_of(seat, policy), usual)


def waits_since(seat: JobSeat, now: Instant) -> Instant:
    """Since when a job waits that was not known to: since it yielded, or, if it never ran, since it was declared."""
    parked = [case.attempt.since for case in seat.open.values() if not case.governs]
    if parked:
        return min(now, *parked)  # a leader before may have had a clock that was ahead
    return now if seat.job is None or seat.next_run > 1 else min(now, seat.job.at)


def why_not(one: Waiting, room: Room, found: Lack) -> tuple[Because, str]:
    """Why a job is not started; `found`: what is lacking for one of its members."""
    if refusal := _refusal(one, room):
        return Because.LACKS, refusal
    if found.kinds or not found.ever:
        return Because.LACKS, found.message
    if any(hungry.priority > one.priority for hungry in room.hungry):
        return Because.BEHIND, "a model that lacks the same comes first"
    return Because.LACKS, "what is free is not enough for all members, or is reserved for models"


def _refusal(one: Waiting, room: Room) -> str:
    """Which limit beside the nodes says no to its members; empty: none."""
    tally = tally_of(room.ledger)
    return "" if tally is None else tally.taken(need_of(one.resources), one.least)


def _waited(seat: JobSeat, now: Instant) -> Seconds:
    return Seconds(0.0 if seat.waiting_since is None else now - seat.waiting_since)
