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
from preemption.core.attempts.states import State
from preemption.core.inventory import Ledger
from preemption.core.lending.case import Case, read_case
from preemption.core.lending.deciding import Decider
from preemption.core.lending.granting import grant_of, says_the_same
from preemption.core.lending.moving import Moves
from preemption.core.lending.policy import LendingCounts, LendingPolicy
from preemption.core.lending.seat import ASKED_BY_PEOPLE, Job, JobSeat
from preemption.core.lending.shortages import Lent, Scene, Short, tell_cases, tell_others
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.seat import Told

_FORGOTTEN_MOST = 4096
"""Names of jobs that are gone whose runs are remembered. (Others are found in the log by the next leader.)"""


class Lender:
    """All training jobs of the pool. Changes the pool's ledger."""

    def __init__(self, policy: LendingPolicy, ledger: Ledger, counts: LendingCounts) -> None:
        self.counts = counts
        self._ledger = ledger
        self._seats: dict[str, JobSeat] = {}
        self._moves = Moves(policy, ledger, counts, self._seats)
        self.claims = self._moves.claims
        self._dirty = self._moves.dirty
        self._nodes: dict[str, CardsObserved] = {}
        self._forgotten: dict[str, int] = {}
        """The newest runs of names whose jobs are gone."""
        self._started: dict[str, TrainingGranted] = {}
        self._decider = Decider(policy, ledger, self.claims, self._seats)
        self._decider.opened = self._moves.opened

    # What is known.

    def set_job(self, job: Job) -> None:
        """A job is declared, paused, resumed, cancelled or deleted."""
        self._decider.set_job(self._seat(job.name), job)

    def set_policy(self, policy: PoolPolicy) -> None:
        """The pool's settings, from the next decision on."""
        self._moves.policy = policy.lending
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
        self._moves.stand(self._seat(event.job), case, event)

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
        self._dirty |= self._moves.opened | self._moved()
        for name in sorted(self._dirty):
            self._moves.advance(self._seats[name], now)
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
        return self._moves.settle({**wants, **self._decider.gangs}, now)

    def plan(self, now: Instant, wants: Mapping[str, Short], scene: Scene) -> None:
        """Start jobs, and choose victims."""
        for name in sorted(self._dirty):
            self._ask_by_people(self._seats[name], now)
        made = self._decider.decide(self._dirty, wants, scene, now)
        for attempt in made.needless:
            self._moves.call_off(attempt, now)
        for case in made.cases:
            seat = self._seats[case.attempt.job]
            self._moves.open(seat, case)
        for name, grant in made.started.items():
            seat = self._seats[name]
            seat.grant = self._started[name] = grant
            self.counts.training_starts += 1
            self._moves.advance(seat, now)
        self._dirty |= set(made.touched)

    def told(self, now: Instant, wants: Mapping[str, Short]) -> dict[str, Told]:
        """What is done about each model's shortage."""
        by_shortage: dict[str, list[Case]] = {}
        for name in sorted(self._moves.opened):
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
                self._moves.hold(seat)
            if seat.over:
                self._forget(seat)
        self._dirty.clear()
        moments = [*self._decider.again_at(), *self._moves.moments(now)]
        if started or self._ledger.version != version:
            moments.append(now)
        return Lent(self._moves.records(), tuple(grants.values()), min(moments, default=None))

    # Its jobs.

    def _seat(self, name: str) -> JobSeat:
        self._dirty.add(name)
        if name not in self._seats:
            self._seats[name] = JobSeat(name, self._moves.usual, runs_before=self._forgotten.pop(name, 0))
        return self._seats[name]

    def _ask_by_people(self, seat: JobSeat, now: Instant) -> None:
        """A run that a person does not want any more, or that has lost its cards, is told to checkpoint and end."""
        if seat.job is None or seat.governing is not None or not seat.alive or seat.given_up:
            return
        want = seat.want(now)
        if want in ASKED_BY_PEOPLE:
            self._moves.open(seat, self._decider.asked_by_person(seat, want, now))
        elif seat.misplaced:
            self._moves.open(seat, self._decider.lost_its_cards(seat, now))

    def _forget(self, seat: JobSeat) -> None:
        """A job is deleted and gone. Its name's runs are counted on, should somebody use it again."""
        del self._seats[seat.name]
        self._forgotten[seat.name] = seat.next_run - 1
        if len(self._forgotten) > _FORGOTTEN_MOST:
            del self._forgotten[next(iter(self._forgotten))]


def _keeps(seat: JobSeat) -> bool:
    """Whether the members of its run may stay in its grant."""
    if not seat.granted or (seat.governing is not None and seat.governing.state is State.CLAIMED):
        return bool(seat.kept)
    if seat.seen is not None and seat.seen.state is RunState.ENDED and seat.seen.empty_at is not None:
        return False
    return seat.governing is not None or not seat.given_up
