"""The lender: lends cards to training jobs, and takes them back for what comes first. Pure; one decision at a time.

`Pool` (`preemption.core.allocator`) owns one and asks it in the course of its own decision, in this order:

1. `begin`: what was seen of runs moves their attempts on; what is seen empty becomes free, or a claim.
2. (The pool places models; those with claims are placed there.)
3. `settle`: claims that were used, or are not wanted any more, end; attempts whose shortage is gone are called off.
4. `plan`: waiting jobs are started where there is room; for what is still short, victims are chosen.
5. `finish`: the grants of jobs, and the records of attempts, that changed. Records are written first.
"""

from __future__ import annotations

from collections.abc import Mapping

from events.types.reclaims import ReclaimChanged
from events.types.replicas import CardsObserved
from events.types.training import RunState, TrainingGranted, TrainingObserved
from events.units import Instant
from preemption.core.attempts.attempt import News
from preemption.core.attempts.states import TABLE, Happened, State
from preemption.core.inventory import Ledger
from preemption.core.lending.case import Case, Cause, account, read_case, resumed, step
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.deciding import Decider
from preemption.core.lending.granting import grant_of, says_the_same
from preemption.core.lending.news import news_of
from preemption.core.lending.policy import LendingCounts, LendingPolicy
from preemption.core.lending.seat import ASKED_BY_PEOPLE, Job, JobSeat, Want
from preemption.core.lending.shortages import Lent, Scene, Short, tell_cases, tell_others
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.usual import UsualTimes
from preemption.core.seat import Told

_STEPS_MOST = 32
"""Changes of one attempt in one decision: more than any path of the table has."""

_FORGOTTEN_MOST = 4096
"""Names of jobs that are gone whose runs are remembered. (Others are found in the log by the next leader.)"""

_NEVER_BACK = frozenset({Want.CANCELLED, Want.DELETED, Want.FINISHED, Want.REPLACED})

_OVER = frozenset({State.DRAINING, State.DRAINING_DONE, State.LOST})


class Lender:
    """All training jobs of the pool. Changes the pool's ledger."""

    def __init__(self, policy: LendingPolicy, ledger: Ledger, counts: LendingCounts) -> None:
        self.counts = counts
        self.claims = ClaimBook(ledger)
        self._policy = policy
        self._ledger = ledger
        self._seats: dict[str, JobSeat] = {}
        self._usual = UsualTimes()
        self._dirty: set[str] = set()
        self._opened: set[str] = set()
        """Jobs that have attempts which have not ended."""
        self._nodes: dict[str, CardsObserved] = {}
        self._going: set[str] = set()
        """Attempts whose claims were used by a grant that was not on record yet."""
        self._forgotten: dict[str, int] = {}
        """The newest runs of names whose jobs are gone."""
        self._changed: dict[str, Case] = {}
        self._started: dict[str, TrainingGranted] = {}
        self._decider = Decider(policy, ledger, self.claims, self._seats)
        self._decider.opened = self._opened

    # What is known.

    def set_job(self, job: Job) -> None:
        """A job is declared, paused, resumed, cancelled or deleted."""
        self._decider.set_job(self._seat(job.name), job)

    def set_policy(self, policy: PoolPolicy) -> None:
        """The pool's settings, from the next decision on."""
        self._policy = policy.lending
        self._decider.set_policy(policy)

    def set_granted(self, grant: TrainingGranted) -> None:
        """A grant that stands in the log from before."""
        seat = self._seat(grant.job)
        seat.grant, seat.told = grant, (grant.reasons, grant.message) if not grant.members else seat.told

    def set_observed(self, seen: TrainingObserved) -> None:
        """A job's newest run as the adapter sees it."""
        self._seat(seen.job).observe(seen)

    def set_reclaim(self, event: ReclaimChanged, epoch: int) -> None:
        """An attempt that stands in the log from before. ValueError: it cannot be read."""
        case = read_case(event, epoch)
        seat = self._seat(event.job)
        if case.attempt.ended:
            self._usual.see(event)
            seat.open.pop(case.id, None)
        else:
            seat.open[case.id] = case
        (self._opened.add if seat.open else self._opened.discard)(seat.name)
        if (at := case.yielded_at) is not None and at not in seat.yielded:
            seat.yielded = tuple(sorted((*seat.yielded, at)))

    def granted(self, job: str) -> TrainingGranted | None:
        """The newest grant of a job."""
        seat = self._seats.get(job)
        return None if seat is None else seat.grant

    def reclaim(self, job: str, attempt: str) -> ReclaimChanged | None:
        """The record of an open attempt."""
        seat = self._seats.get(job)
        case = None if seat is None else seat.open.get(attempt)
        return None if case is None else case.record()

    @property
    def seats(self) -> Mapping[str, JobSeat]:
        """By job; for reading."""
        return self._seats

    def lead(self, epoch: int) -> None:
        """From now on attempts are made under this leadership."""
        self._decider.epoch = epoch

    @property
    def idle(self) -> bool:
        """Whether there is no job at all."""
        return not self._seats

    # One decision.

    def begin(self, now: Instant) -> bool:
        """Move attempts on by what is seen; whether anything became free."""
        if self._ledger.overcommitted():
            self.claims.refresh()
        version = self._ledger.version
        self._dirty |= self._opened | self._moved()
        for name in sorted(self._dirty):
            self._advance(self._seats[name], now)
        return self._ledger.version != version

    def _moved(self) -> set[str]:
        """All jobs, if any node was told anew: their places may not be there any more, or again."""
        now, before = self._ledger.seen, self._nodes
        if len(now) == len(before) and all(before.get(name) is seen for name, seen in now.items()):
            return set()
        self._nodes = dict(now)
        return set(self._seats)

    def settle(self, now: Instant, wants: Mapping[str, Short]) -> bool:
        """End claims that were used or are not wanted, and call off what no shortage needs; whether something became
        free."""
        freed = False
        for name in sorted(self._opened):
            for case in self._seats[name].holding:
                freed |= self._settle(self._seats[name], case, wants, now)
        return freed

    def plan(self, now: Instant, wants: Mapping[str, Short], scene: Scene) -> None:
        """Start jobs, and choose victims."""
        for name in sorted(self._dirty):
            self._ask_by_people(self._seats[name], now)
        made = self._decider.decide(self._dirty, wants, scene, now)
        for attempt in made.needless:
            self._call_off(attempt, now)
        for case in made.cases:
            seat = self._seats[case.attempt.job]
            self._open(seat, case)
        for name, grant in made.started.items():
            seat = self._seats[name]
            seat.grant = self._started[name] = grant
            self.counts.training_starts += 1
            self._advance(seat, now)
        self._dirty |= set(made.touched)

    def told(self, now: Instant, wants: Mapping[str, Short]) -> dict[str, Told]:
        """What is done about each model's shortage."""
        by_shortage: dict[str, list[Case]] = {}
        for name in sorted(self._opened):
            for case in self._seats[name].holding:
                by_shortage.setdefault(case.attempt.shortage, []).append(case)
        told = {name: tell_cases(by_shortage.get(name, []), now) or self._decider.refusals.get(name)
                or tell_others(by_shortage) for name in wants}  # fmt: skip
        return {name: one for name, one in told.items() if one is not None}

    def finish(self, now: Instant) -> Lent:
        """Everything that must be written, and when to look again."""
        grants, self._started = self._started, {}
        started = bool(grants)  # what was claimed for them is looked after at once
        version = self._ledger.version
        for name in sorted(self._dirty | grants.keys()):
            seat = self._seats[name]
            grant = grant_of(seat, keep=_keeps(seat))
            if grant is not None and not says_the_same(seat.grant, grant):
                seat.grant = grants[name] = grant
                self._hold(seat)
            if seat.over:
                self._forget(seat)
        self._dirty.clear()
        records = tuple(case.record() for _, case in sorted(self._changed.items()))
        self._changed.clear()
        return Lent(
            records, tuple(grants.values()), self._again_at(now, freed=self._ledger.version != version or started)
        )

    def _again_at(self, now: Instant, *, freed: bool) -> Instant | None:
        moments = self._decider.again_at()
        for name in self._opened:
            for case in self._seats[name].open.values():
                if case.state is State.SELECTED or case.id in self._going:
                    moments.append(now)  # what was decided is on record by then
                elif case.state is not State.CLAIMED:
                    moments.append(case.attempt.deadline)
        if freed:
            moments.append(now)
        return min(moments, default=None)

    # Attempts.

    def _seat(self, name: str) -> JobSeat:
        self._dirty.add(name)
        if name not in self._seats:
            self._seats[name] = JobSeat(name, self._usual, runs_before=self._forgotten.pop(name, 0))
        return self._seats[name]

    def _advance(self, seat: JobSeat, now: Instant) -> None:
        """Everything that is seen of the job, into its attempts and into the ledger."""
        self._look_for_places(seat)
        for identity in list(seat.open):
            for _ in range(_STEPS_MOST):
                case = seat.open.get(identity)
                news = None if case is None else self._news(seat, case, now)
                if case is None or news is None or self._move(seat, case, news, now) is case:
                    break
        for case in seat.open.values():
            if case.state is State.CLAIMED:
                self._hold(seat)
                self.claims.make(case)
        self._hold(seat)

    def _news(self, seat: JobSeat, case: Case, now: Instant) -> News | None:
        if case.state in (State.PARKED, State.PARKED_AGED) and not seat.alive:
            gone = seat.job is not None and (seat.job.uid != case.attempt.uid or seat.want(now) in _NEVER_BACK)
            if gone:
                return News(Happened.EXIT_DONE)
        return news_of(seat, case, now)

    def _move(self, seat: JobSeat, case: Case, news: News, now: Instant) -> Case:
        """The attempt after the news, which is to be recorded if its state changed."""
        after = step(case, news, now, self._policy.attempt(None if seat.job is None else seat.job.policy))
        if after is case:
            return case
        if after.state is not case.state:
            after = self._entered(seat, case, after, now)
            self._changed[case.id] = after
            self._dirty.add(seat.name)
        if after.attempt.ended:
            self._usual.see(after.record())
            del seat.open[case.id]
            seat.tried.pop(case.id, None)
            if not seat.open:
                self._opened.discard(seat.name)
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
                seat.yielded = (*seat.yielded, now)
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

    def _settle(self, seat: JobSeat, case: Case, wants: Mapping[str, Short], now: Instant) -> bool:
        stands = self._stands(seat, case, wants, now)
        if case.state is State.CLAIMED:
            if case.cause is Cause.GROWS and case is seat.governing and seat.kept:
                return False  # it is about to be started again
            stands = stands and case.for_shortage  # what was not short is anybody's
            return self._settle_claim(seat, case, stands=stands, now=now)
        if not stands and Happened.SHORTAGE_GONE in TABLE[case.state]:
            self._move(seat, case, News(Happened.SHORTAGE_GONE), now)
            self._advance(seat, now)
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

    def _stands(self, seat: JobSeat, case: Case, wants: Mapping[str, Short], now: Instant) -> bool:
        """Whether what the attempt is for is still wanted. (Whether there still is room to grow, the decision says.)"""
        match case.cause:
            case Cause.PERSON:
                return seat.job is not None and seat.want(now) in ASKED_BY_PEOPLE
            case Cause.CARDS_GONE:
                return seat.misplaced
            case Cause.GROWS:
                return True
        short = wants.get(case.attempt.shortage) or self._decider.gangs.get(case.attempt.shortage)
        return short is not None and short.uid == case.shortage_uid

    def _call_off(self, attempt: str, now: Instant) -> None:
        for name in sorted(self._opened):
            seat = self._seats[name]
            case = seat.open.get(attempt)
            if case is not None and self.claims.used(attempt):
                self._going.add(attempt)
            elif case is not None and case.governs:
                self._move(seat, case, News(Happened.SHORTAGE_GONE), now)
                self._advance(seat, now)

    def _ask_by_people(self, seat: JobSeat, now: Instant) -> None:
        """A run that a person does not want any more, or that has lost its cards, is told to checkpoint and end."""
        if seat.job is None or seat.governing is not None or not seat.alive or seat.given_up:
            return
        want = seat.want(now)
        if want in ASKED_BY_PEOPLE:
            self._open(seat, self._decider.asked_by_person(seat, want, now))
        elif seat.misplaced:
            self._open(seat, self._decider.lost_its_cards(seat, now))

    def _open(self, seat: JobSeat, case: Case) -> None:
        seat.open[case.id] = case
        self._opened.add(seat.name)
        self._changed[case.id] = case
        self._dirty.add(seat.name)
        self.counts.reclaims_selected += case.for_shortage

    def _forget(self, seat: JobSeat) -> None:
        """A job is deleted and gone. Its name's runs are counted on, should somebody use it again."""
        del self._seats[seat.name]
        self._forgotten[seat.name] = seat.next_run - 1
        if len(self._forgotten) > _FORGOTTEN_MOST:
            del self._forgotten[next(iter(self._forgotten))]

    # The ledger.

    def _hold(self, seat: JobSeat) -> None:
        """What the job holds, in the ledger."""
        wanted = seat.occupied()
        for name in seat.held - wanted.keys():
            self._ledger.release(name)
        for name, holding in wanted.items():
            self._ledger.hold(name, holding)
        seat.held = frozenset(wanted)

    def _look_for_places(self, seat: JobSeat) -> None:
        governing = seat.governing
        members = [*seat.granted, *(() if governing is None else governing.members)]
        known = bool(self._ledger.nodes)
        seat.misplaced = known and any(not self._ledger.exists(member.placement) for member in members)


def _keeps(seat: JobSeat) -> bool:
    """Whether the members of its run may stay in its grant."""
    if not seat.granted or (seat.governing is not None and seat.governing.state is State.CLAIMED):
        return bool(seat.kept)
    if seat.seen is not None and seat.seen.state is RunState.ENDED and seat.seen.empty_at is not None:
        return False
    return seat.governing is not None or not seat.given_up
