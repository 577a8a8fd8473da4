"""Who is started and who must yield, given what is short: the lender's own decision. Looks at the pool as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from events.names import training_key
from events.types.shared import Resources
from events.types.training import TrainingGranted
from events.units import Instant, Seconds
from preemption.core.gpus.reserve import Reserve
from preemption.core.gpus.shapes import Spot
from preemption.core.inventory import Ledger, Need, need_of
from preemption.core.lending.case import Case, Cause
from preemption.core.lending.choosing import (
    drains_of,
    giving,
    merged,
    new_case,
    planner_job,
    promises_of,
    restart_of,
    shortage_value,
    verdicts_of,
)
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.granting import Because, started, words_of
from preemption.core.lending.mirror import Mirror, mix_of
from preemption.core.lending.planner import Board, Planned, Promised, needless, plan_shortages, retry_at
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import Job, JobSeat, Want, holdings_of
from preemption.core.lending.shortages import Hungry, Scene, Short, tell_plan
from preemption.core.lending.starting import Room, Waiting, place_jobs
from preemption.core.lending.waiting import due_of, settles_of, turn, waiting_job, waits_since, why_not
from preemption.core.placement import Lack, lack
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.values import Job as Victim
from preemption.core.reclaim.values import Outcome
from preemption.core.seat import Told


@dataclass(slots=True)
class Made:
    """New cases; attempts that nobody needs any more; jobs that were started; jobs about which there is news."""

    cases: list[Case] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    started: dict[str, TrainingGranted] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)


class Decider:
    """Decides again only when something that it decided from has changed, or at the time that it named."""

    def __init__(self, policy: LendingPolicy, ledger: Ledger, claims: ClaimBook, seats: Mapping[str, JobSeat]) -> None:
        self.refusals: dict[str, Told] = {}
        """By model: why nobody yields for it."""
        self.gangs: dict[str, Short] = {}
        """Jobs for which others of lower priority may have to yield."""
        self._changes = 0
        """Counts up with each change that may make a difference to who is started, or must yield."""
        self.epoch = 0
        self._policy = policy
        self._ledger = ledger
        self._claims = claims
        self._seats = seats
        self._mirror = Mirror(ledger)
        self._decided_from: object = None
        self._look_at: list[Instant] = []
        self._drains: dict[str, Instant] = {}
        self.opened: set[str] = set()
        """Jobs that have attempts which have not ended."""
        self._waiting: set[str] = set()
        self._aged: set[str] = set()
        """Those that have waited so long that their places are kept free."""
        self._growing: set[str] = set()
        """Jobs that run with fewer members than they could."""
        self._blocked: set[str] = set()
        """Jobs that something forbids to end by force: who is asked is another question once it does not."""
        self._back_off: dict[str, Instant] = {}

    def set_policy(self, policy: PoolPolicy) -> None:
        """The pool's settings, from the next decision on."""
        self._policy = policy.lending
        self._mirror.set_units(policy.units)
        self._changes += 1

    def set_job(self, seat: JobSeat, job: Job) -> None:
        """A declaration that has changed.

        Who waits without any prospect, and does not want to run any more, leaves nothing to others: all that is known
        of them stands. So thousands of such jobs can be deleted one after the other without looking at all the others
        each time.
        """
        if not (job.stopped and self._in_vain(seat)):
            self._changes += 1
        seat.job = job

    def _in_vain(self, seat: JobSeat) -> bool:
        """Whether a job waits, holds nothing, keeps nothing free for itself, and nobody is asked to yield for it."""
        waits = seat.name in self._waiting and seat.fits_since is None and seat.name not in self._aged
        key = training_key(seat.name)
        return waits and not (seat.open or seat.held or key in self.gangs or self._claims.has(key))

    def decide(self, dirty: set[str], wants: Mapping[str, Short], scene: Scene, now: Instant) -> Made:
        """What to start, and who must yield. `dirty`: jobs that may have changed since the last time."""
        made = Made()
        for name in sorted(dirty | {name for name, at in self._back_off.items() if at <= now}):
            self._sort(name, made, now)
        key = (
            self._ledger.version, self._changes, frozenset(self._growing), scene.hungry,
            frozenset(self._blocked),
            tuple((one.name, one.uid, one.count, one.priority, one.resources, one.blocked)
                  for _, one in sorted(wants.items())),
            tuple((case.id, case.state) for case in self._holding()),
        )  # fmt: skip
        if key != self._decided_from or any(at <= now for at in self._look_at):
            self._decided_from, self._look_at = key, []
            if self._waiting or self._growing or wants or self.gangs:
                self._decide(wants, scene, made, now)
        return made

    def again_at(self) -> list[Instant]:
        """When to decide again though nothing happens."""
        return [*self._look_at, *self._back_off.values()]

    def _decide(self, wants: Mapping[str, Short], scene: Scene, made: Made, now: Instant) -> None:
        usual = scene.usual()
        self._drains = {name: self._drains.get(name, now) for name in usual.drains}
        seats = [self._seats[name] for name in sorted(self._waiting)]
        room = self._room(scene.hungry, [*usual.resources, *(seat.job.policy.resources for seat in seats if seat.job)])
        if seats or self._growing:
            self._start(seats, room, made, now)
        self._find_gangs([seat for seat in seats if seat.name not in made.started], now)
        self._reclaim({**wants, **self.gangs}, room, made, now)

    def asked_by_person(self, seat: JobSeat, want: Want, now: Instant) -> Case:
        """The attempt that ends a run because a person wants that."""
        how = self._policy, self.epoch
        return new_case(seat, Cause.PERSON, how, now, message=f"{seat.name} was {_PEOPLE[want]}")

    def lost_its_cards(self, seat: JobSeat, now: Instant) -> Case:
        """The attempt that ends a run whose node or cards are not there any more."""
        how = self._policy, self.epoch
        return new_case(seat, Cause.CARDS_GONE, how, now, message=f"the cards of {seat.name} are not there any more")

    # Who is started.

    def _sort(self, name: str, made: Made, now: Instant) -> None:
        """Whether a job waits for room, for its next try, or does not want to run."""
        waited = name in self._waiting
        self._waiting.discard(name)
        self._growing.discard(name)
        self._back_off.pop(name, None)
        seat = self._seats.get(name)
        (self._blocked.add if seat is not None and seat.blocked else self._blocked.discard)(name)
        if seat is None or seat.job is None:
            return
        want = seat.want(now)
        if want is Want.RUN:
            free = seat.governing is None and not seat.alive and (seat.empty or seat.misplaced)
            if free or seat.kept:
                self._waiting.add(name)
                self._changes += not waited
                seat.waiting_since = waits_since(seat, now) if seat.waiting_since is None else seat.waiting_since
            elif seat.may_grow:
                self._growing.add(name)
            elif not seat.alive:
                self._tell(seat, made, Because.WAITS_EMPTY, "its last run is not seen to be gone from its cards")
            return
        self._changes += waited and not seat.job.stopped  # (`set_job` has counted those)
        retry_at = None if seat.observed is None else seat.observed.retry_at
        if want is Want.BACKS_OFF and retry_at is not None:
            self._back_off[name] = Instant(retry_at)
        else:
            seat.waiting_since = None
        seat.fits_since = None
        if seat.told != (told := ((str(want),), "")):
            seat.told = told
            made.touched.add(name)

    def _start(self, seats: Sequence[JobSeat], room: Room, made: Made, now: Instant) -> None:
        """Start those that have room, and have had it for long enough; and likewise with more members."""
        waiting = sorted(
            (waiting_job(seat, self._claims, self._policy, now) for seat in seats), key=lambda one: turn(one, now)
        )
        self._aged = {one.seat.name for one in waiting if one.aged}
        growing = [waiting_job(self._seats[name], self._claims, self._policy, now) for name in sorted(self._growing)]
        placed, lacks = place_jobs(room, waiting, growing), dict[Need, Lack]()
        for one in growing:
            if not placed.more[one.seat.name] and not placed.spots:  # a demand has taken it
                one.seat.room_ended(one.seat.grows_since, now)
            self._grow(one, placed.more[one.seat.name], made, now)
        for one in waiting:
            seat = one.seat
            spots = placed.spots.get(seat.name)
            if spots is None:
                if not placed.spots:  # else another job has it
                    seat.room_ended(seat.fits_since, now)
                seat.fits_since = None
                need = need_of(one.resources)
                lacks[need] = lacks.get(need) or lack(self._ledger, need)
                self._tell(seat, made, *why_not(one, room, lacks[need]))
                continue
            seat.fits_since = now if seat.fits_since is None else seat.fits_since
            due, why, words = (now, Because.SETTLES, "") if one.claimed or one.kept else due_of(seat, self._policy, now)
            if now < due:
                self._look_at.append(due)
                self._tell(seat, made, why, words)
            else:
                made.started[seat.name] = self._started(seat, spots, now)

    def _grow(self, one: Waiting, more: int, made: Made, now: Instant) -> None:
        """Have a job that could have so many more members end, to be started again with them, once that pays."""
        seat, case = one.seat, one.seat.governing
        if not more or case is not None:
            seat.grows_since = seat.grows_since if more else None
            made.needless += [] if more or case is None else [case.id]
            return
        seat.grows_since = now if seat.grows_since is None else seat.grows_since
        lasts = self._policy.grows(len(seat.granted), more, restart_of(seat, self._policy))
        due = Instant(seat.grows_since + max(lasts, settles_of(seat, self._policy, now)))
        if now < due:
            self._look_at.append(due)
            return
        words = f"there is room for {more} more of the members of {seat.name}, which runs with {len(seat.granted)}"
        made.cases.append(giving(new_case(seat, Cause.GROWS, (self._policy, self.epoch), now, message=words), ()))

    def _started(self, seat: JobSeat, spots: Sequence[Spot], now: Instant) -> TrainingGranted:
        assert seat.job is not None
        grant = started(seat, seat.job, tuple(self._mirror.placement(spot) for spot in spots))
        self._claims.take(training_key(seat.name), holdings_of(grant.members))
        seat.waited = Seconds(now - (now if seat.waiting_since is None else seat.waiting_since))
        if not seat.kept:
            seat.room_since = seat.fits_since
        elif seat.grows_since is not None:
            seat.room_since = seat.grows_since
        seat.grows_since = None
        seat.waiting_since = seat.fits_since = None
        seat.started_at, seat.told = now, ((), "")
        self._waiting.discard(seat.name)
        return grant

    def _room(self, hungry: tuple[Hungry, ...], resources: Iterable[Resources]) -> Room:
        training = [holding for name, holding in self._ledger.holdings.items() if name.startswith("training/")]
        for gang in self.gangs:
            for attempt in self._claims.attempts(gang):
                training += self._claims.parts(attempt).values()
        reserve = Reserve(self._policy.reserve_shared, self._policy.reserve_whole)
        self._mirror.sync()
        return Room(
            ledger=self._ledger, mirror=self._mirror, training=training, hungry=hungry, mix=mix_of(resources),
            reserve=reserve,
        )  # fmt: skip

    def _tell(self, seat: JobSeat, made: Made, why: Because, message: str) -> None:
        if seat.told[0] != (str(why),) or words_of(seat.told[1]) != words_of(message) or seat.grant is None:
            made.touched.add(seat.name)
        seat.told = (str(why),), message

    def _find_gangs(self, waiting: Sequence[JobSeat], now: Instant) -> None:
        """Waiting jobs for which others of lower priority could yield."""
        self.gangs = {}
        served = {case.attempt.shortage for case in self._holding()}
        lowest = min((seat.priority for seat in self._seats.values() if seat.alive), default=None) if waiting else None
        for seat in waiting:
            job = seat.job
            name = training_key(seat.name)
            able = job is not None and lowest is not None and job.policy.priority > lowest and seat.fits_since is None
            able = able and seat.spent_until(now) is None
            if job is None or not (able or name in served):
                continue
            self.gangs[name] = Short(
                name=name, uid=job.uid, resources=job.policy.resources, count=job.policy.min_members, gang=True,
                priority=job.policy.priority, since=seat.waiting_since or now, kinds=frozenset(),
            )  # fmt: skip

    # Who must yield.

    def _reclaim(self, shorts: Mapping[str, Short], room: Room, made: Made, now: Instant) -> None:
        self.refusals = {name: told for name, told in self.refusals.items() if name in shorts}
        if not shorts or not any(seat.job is not None and seat.granted for seat in self._seats.values()):
            self.refusals.clear()
            return
        blocked = frozenset(name for name, short in shorts.items() if short.blocked)
        board = self._board(room, blocked, now)
        values = [shortage_value(short, self._mirror) for short in shorts.values()]
        made.needless += needless(board, values)
        running = {job.name for job in board.jobs}
        spent = sum(seat.recent(now) for name, seat in self._seats.items() if seat.yielded and name not in running)
        reclaim = replace(self._policy.reclaim, pool_budget=self._policy.reclaim.pool_budget - spent)
        planned = plan_shortages(board, values, reclaim, now)
        for one in planned:
            self._follow(one, shorts[one.shortage.name], made, now)
        again = retry_at(planned, now)
        self._look_at += [] if again is None else [again]

    def _follow(self, one: Planned, short: Short, made: Made, now: Instant) -> None:
        """The cases that a plan comes to, or why there is none."""
        plan, name = one.plan, short.name
        if one.idle:
            made.needless += [case.id for case in self._holding() if case.attempt.shortage == name]
        self.refusals.pop(name, None)
        if plan is not None and plan.outcome in (Outcome.INFEASIBLE, Outcome.COMING):
            told = tell_plan(plan, now)
            self.refusals |= {} if told is None else {name: told}
        if plan is None or plan.outcome is not Outcome.RECLAIMS:
            return
        verdicts = verdicts_of(plan)
        who = f"{'job' if short.gang else 'model'} {name.removeprefix('training/')}"
        for victim in merged(plan.victims):
            seat, how = self._seats[victim.job], (self._policy, self.epoch)
            case = new_case(seat, short, how, now, message=f"{who} needs its cards")
            seat.room_ended(seat.room_since, max(short.since, seat.room_since or now))
            if not victim.whole:
                given, count = tuple(seat.granted[index] for index in victim.members), len(seat.granted)
                case = replace(giving(case, given), message=f"{who} needs {len(given)} of its {count} members' cards")
            made.cases.append(case.priced(victim.cost, verdicts))

    def _holding(self) -> list[Case]:
        """All attempts that hold cards."""
        return [case for name in sorted(self.opened) for case in self._seats[name].holding]

    def _board(self, room: Room, blocked: frozenset[str], now: Instant) -> Board:
        space = self._mirror.sync()
        jobs: list[Victim] = []
        promised: list[Promised] = []
        for _, seat in sorted(self._seats.items()):
            if seat.alive and (job := planner_job(seat, (self._policy, self._mirror), now)) is not None:
                jobs.append(job)
            promised += promises_of(seat, self._mirror, self._claims, self._policy, now)
        return Board(
            space=space, jobs=tuple(jobs), promised=tuple(promised), mix=room.mix,
            coming=drains_of(self._drains, self._mirror, self._policy, now), gangs=frozenset(self.gangs),
            blocked=blocked, for_training=room.seen,
        )  # fmt: skip


_PEOPLE = {
    Want.PAUSED: "paused", Want.CANCELLED: "cancelled", Want.DELETED: "deleted", Want.REPLACED: "declared anew",
}  # fmt: skip
