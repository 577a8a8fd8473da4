"""Attempts as they go from state to state, by what is seen of the runs they are about; and what jobs hold meanwhile, in
the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from events.types.reclaims import ReclaimChanged
from events.units import Instant
from preemption.core.attempts.attempt import News
from preemption.core.attempts.states import TABLE, Happened, State
from preemption.core.inventory import Ledger
from preemption.core.lending.case import Case, Cause, account, resumed, step
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.news import news_of
from preemption.core.lending.policy import LendingCounts, LendingPolicy
from preemption.core.lending.seat import ASKED_BY_PEOPLE, JobSeat, Want
from preemption.core.lending.shortages import Short
from preemption.core.reclaim.usual import UsualTimes

_STEPS_MOST: Final = 32
"""Changes of one attempt in one decision: more than any path of the table has."""

_NEVER_BACK: Final = frozenset({Want.CANCELLED, Want.DELETED, Want.FINISHED, Want.REPLACED})

_OVER: Final = frozenset({State.DRAINING, State.DRAINING_DONE, State.LOST})


class Moves:
    """All attempts of a pool. Changes its ledger, and the seats of their jobs."""

    def __init__(
        self, policy: LendingPolicy, ledger: Ledger, counts: LendingCounts, seats: Mapping[str, JobSeat]
    ) -> None:
        self.policy = policy
        self.counts = counts
        self.claims = ClaimBook(ledger)
        self.usual = UsualTimes()
        self.dirty: set[str] = set()
        """Jobs that may have changed since the last decision."""
        self.opened: set[str] = set()
        """Jobs that have attempts which have not ended."""
        self._ledger = ledger
        self._seats = seats
        self._going: set[str] = set()
        """Attempts whose claims were used by a grant that was not on record yet."""
        self._changed: dict[str, Case] = {}

    def stand(self, seat: JobSeat, case: Case, event: ReclaimChanged) -> None:
        """An attempt that stands in the log from before."""
        if case.attempt.ended:
            self.usual.see(event)
            seat.open.pop(case.id, None)
        else:
            seat.open[case.id] = case
        (self.opened.add if seat.open else self.opened.discard)(seat.name)
        if (at := case.yielded_at) is not None:
            seat.had_to_yield(at, case.attempt.uid)

    def records(self) -> tuple[ReclaimChanged, ...]:
        """Those whose state changed since this was asked last."""
        records = tuple(case.record() for _, case in sorted(self._changed.items()))
        self._changed.clear()
        return records

    def moments(self, now: Instant) -> list[Instant]:
        """When each must be looked at again."""
        moments = []
        for name in self.opened:
            for case in self._seats[name].open.values():
                if case.state is State.SELECTED or case.id in self._going:
                    moments.append(now)  # what was decided is on record by then
                elif case.state is not State.CLAIMED:
                    moments.append(case.attempt.deadline)
        return moments

    def open(self, seat: JobSeat, case: Case) -> None:
        """A new attempt."""
        seat.open[case.id] = case
        self.opened.add(seat.name)
        self._changed[case.id] = case
        self.dirty.add(seat.name)
        self.counts.reclaims_selected += case.for_shortage

    def advance(self, seat: JobSeat, now: Instant) -> None:
        """Everything that is seen of the job, into its attempts and into the ledger."""
        self._look_for_places(seat)
        for identity in list(seat.open):
            self._set_clock(seat, seat.open[identity], now)
            for _ in range(_STEPS_MOST):
                case = seat.open.get(identity)
                news = None if case is None else self._news(seat, case, now)
                if case is None or news is None or self._move(seat, case, news, now) is case:
                    break
        for case in seat.open.values():
            if case.state is State.CLAIMED:
                self.hold(seat)
                self.claims.make(case)
        self.hold(seat)

    def _set_clock(self, seat: JobSeat, case: Case, now: Instant) -> None:
        """A leader before us, whose clock was ahead of ours, set the deadline: a state that should begin only later
        begins now, so nobody waits for the difference, and what was before it is as long before."""
        attempt, ahead = case.attempt, case.attempt.since - now
        if ahead <= 0:
            return
        lasts = self.policy.attempt(None if seat.job is None else seat.job.policy).of(case.state)
        seat.open[case.id] = replace(case, shortage_since=Instant(case.shortage_since - ahead), attempt=replace(
            attempt, since=now, due=Instant(attempt.due - ahead), deadline=Instant(min(attempt.deadline, now + lasts)),
            history=tuple(replace(change, at=Instant(change.at - ahead)) for change in attempt.history),
        ))  # fmt: skip

    def settle(self, shorts: Mapping[str, Short], now: Instant) -> bool:
        """End claims that were used or are not wanted, and call off what no shortage needs; whether something became
        free."""
        freed = False
        for name in sorted(self.opened):
            for case in self._seats[name].holding:
                freed |= self._settle(self._seats[name], case, shorts, now)
        return freed

    def call_off(self, attempt: str, now: Instant) -> None:
        """Nobody needs what it is to free."""
        for name in sorted(self.opened):
            seat = self._seats[name]
            case = seat.open.get(attempt)
            if case is not None and self.claims.used(attempt):
                self._going.add(attempt)
            elif case is not None and case.governs:
                self._move(seat, case, News(Happened.SHORTAGE_GONE), now)
                self.advance(seat, now)

    def hold(self, seat: JobSeat) -> None:
        """What the job holds, in the ledger."""
        wanted = seat.occupied()
        for name in seat.held - wanted.keys():
            self._ledger.release(name)
        for name, holding in wanted.items():
            self._ledger.hold(name, holding)
        seat.held = frozenset(wanted)

    def _news(self, seat: JobSeat, case: Case, now: Instant) -> News | None:
        if case.state in (State.PARKED, State.PARKED_AGED) and not seat.alive:
            gone = seat.job is not None and (seat.job.uid != case.attempt.uid or seat.want(now) in _NEVER_BACK)
            if gone:
                return News(Happened.EXIT_DONE)
        return news_of(seat, case, now)

    def _move(self, seat: JobSeat, case: Case, news: News, now: Instant) -> Case:
        """The attempt after the news, which is to be recorded if its state changed."""
        after = step(case, news, now, self.policy.attempt(None if seat.job is None else seat.job.policy))
        if after is case:
            return case
        if after.state is not case.state:
            after = self._entered(seat, case, after, now)
            self._changed[case.id] = after
            self.dirty.add(seat.name)
        if after.attempt.ended:
            self.usual.see(after.record())
            del seat.open[case.id]
            seat.tried.pop(case.id, None)
            if not seat.open:
                self.opened.discard(seat.name)
        else:
            seat.open[case.id] = after
        return after

    def _entered(self, seat: JobSeat, before: Case, after: Case, now: Instant) -> Case:
        """What a change of state brings with it: the ledger, the claim, the counts."""
        seen = seat.observed if seat.observed is not None and seat.observed.run == before.run else None
        if after.state in _OVER and before.state not in _OVER and before.state is not State.CLAIMED:
            after = account(after, seen)
            if after.state is not State.DRAINING_DONE and after.for_shortage:
                self.counts.thrash += seat.recent(now) > 0
                seat.had_to_yield(now, after.attempt.uid)
        if after.state is State.RESUMED and seat.seen is not None:
            after = resumed(after, seat.seen)
        if before.state is State.CLAIMED:
            self.claims.end(before.id)
            self._going.discard(before.id)
        self._count(before, after)
        return after

    def _count(self, before: Case, after: Case) -> None:
        counts = self.counts
        counts.notices_acked += after.state is State.SAVING and before.state is not State.SAVING
        counts.escalations_terminate += after.state is State.STOPPING
        counts.escalations_kill += after.state is State.KILLING
        if not after.attempt.ended:
            return
        counts.gpu_seconds_lost += sum(after.ledger.lost.values())
        counts.reclaims_resumed += after.state is State.RESUMED
        counts.reclaims_continued += after.state is State.CONTINUED
        counts.reclaims_finished += after.state is State.FINISHED
        counts.reclaims_skipped += after.state is State.SKIPPED
        counts.reclaims_failed += after.state is State.FAILED

    def _settle(self, seat: JobSeat, case: Case, shorts: Mapping[str, Short], now: Instant) -> bool:
        stands = self._stands(seat, case, shorts, now)
        if case.state is State.CLAIMED:
            if case.cause is Cause.GROWS and case is seat.governing and seat.kept:
                return False  # it is about to be started again
            stands = stands and case.for_shortage  # what was not short is anybody's
            return self._settle_claim(seat, case, stands=stands, now=now)
        if not stands and Happened.SHORTAGE_GONE in TABLE[case.state]:
            self._move(seat, case, News(Happened.SHORTAGE_GONE), now)
            self.advance(seat, now)
        return False

    def _settle_claim(self, seat: JobSeat, case: Case, *, stands: bool, now: Instant) -> bool:
        """A claim that was used ends once the grant that used it is on record; one that is not wanted ends at once."""
        used, going = self.claims.used(case.id), case.id in self._going
        if stands and not going and not self.claims.spent(case.id):
            self._move(seat, case, News(Happened.CLAIM_ALIVE), now)
            return False
        if used and not going:
            self._going.add(case.id)
            return False
        self.counts.reclaims_bound += used
        self._move(seat, case, News(Happened.BOUND if used else Happened.SHORTAGE_GONE), now)
        return True

    def _stands(self, seat: JobSeat, case: Case, shorts: Mapping[str, Short], now: Instant) -> bool:
        """Whether what the attempt is for is still wanted. (Whether there still is room to grow, the decision says.)"""
        match case.cause:
            case Cause.PERSON:
                return seat.job is not None and seat.want(now) in ASKED_BY_PEOPLE
            case Cause.CARDS_GONE:
                return seat.misplaced
            case Cause.GROWS:
                return True
        short = shorts.get(case.attempt.shortage)
        return short is not None and short.uid == case.shortage_uid

    def _look_for_places(self, seat: JobSeat) -> None:
        governing = seat.governing
        members = [*seat.granted, *(() if governing is None else governing.members)]
        known = bool(self._ledger.nodes)
        seat.misplaced = known and any(not self._ledger.exists(member.placement) for member in members)
