"""Who is started and who must yield, given what is short: the lender's own decision. Looks at the pool as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from events.names import training_key
from events.types.shared import Resources
from events.types.training import TrainingGranted
from events.units import Instant, Seconds
from preemption.core.gpus.reserve import Reserve
from preemption.core.gpus.shapes import Spot
from preemption.core.inventory import Ledger, Need, need_of
from preemption.core.lending.case import Case, Cause
from preemption.core.lending.choosing import giving, new_case, restart_of
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.granting import Because, started
from preemption.core.lending.lists import Lists, tell
from preemption.core.lending.mirror import Mirror, mix_of
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import Job, JobSeat, Want, holdings_of
from preemption.core.lending.shortages import Hungry, Scene, Short
from preemption.core.lending.starting import Room, Waiting, place_jobs
from preemption.core.lending.waiting import due_of, settles_of, turn, waiting_job, why_not
from preemption.core.lending.yielding import Sight, ask_to_yield, find_gangs, holding
from preemption.core.placement import Lack, lack
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.seat import Told


@dataclass(slots=True)
class Made:
    """New cases; attempts that nobody needs any more; jobs that were started; jobs about which there is news."""

    cases: list[Case] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    started: dict[str, TrainingGranted] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def hear(self, seat: JobSeat, why: Because, message: str) -> None:
        """Why a job is not started now."""
        if tell(seat, why, message):
            self.touched.add(seat.name)


class Decider:
    """Decides again only when something that it decided from has changed, or at the time that it named."""

    def __init__(self, policy: LendingPolicy, ledger: Ledger, claims: ClaimBook, seats: Mapping[str, JobSeat]) -> None:
        self.refusals: dict[str, Told] = {}
        """By model: why nobody yields for it."""
        self.gangs: dict[str, Short] = {}
        """Jobs for which others of lower priority may have to yield."""
        self.epoch = 0
        self.opened: set[str] = set()
        """Jobs that have attempts which have not ended."""
        self._policy = policy
        self._ledger = ledger
        self._claims = claims
        self._seats = seats
        self._lists = Lists(seats, claims)
        self._mirror = Mirror(ledger)
        self._decided_from: object = None
        self._look_at: list[Instant] = []
        self._drains: dict[str, Instant] = {}

    def set_policy(self, policy: PoolPolicy) -> None:
        """The pool's settings, from the next decision on."""
        self._policy = policy.lending
        self._mirror.set_units(policy.units)
        self._lists.changes += 1

    def set_job(self, seat: JobSeat, job: Job) -> None:
        """A declaration that has changed."""
        self._lists.declare(seat, job, self.gangs)

    def decide(self, dirty: set[str], wants: Mapping[str, Short], scene: Scene, now: Instant) -> Made:
        """What to start, and who must yield. `dirty`: jobs that may have changed since the last time."""
        made, lists = Made(), self._lists
        made.touched |= lists.sort(dirty, now)
        key = (
            self._ledger.version, lists.changes, frozenset(lists.growing), scene.hungry, frozenset(lists.blocked),
            tuple((one.name, one.uid, one.count, one.priority, one.resources, one.blocked)
                  for _, one in sorted(wants.items())),
            tuple((case.id, case.state) for case in holding(self._seats, self.opened)),
        )  # fmt: skip
        if key != self._decided_from or any(at <= now for at in self._look_at):
            self._decided_from, self._look_at = key, []
            if lists.waiting or lists.growing or wants or self.gangs:
                self._decide(wants, scene, made, now)
        return made

    def again_at(self) -> list[Instant]:
        """When to decide again though nothing happens."""
        return [*self._look_at, *self._lists.back_off.values()]

    def asked_by_person(self, seat: JobSeat, want: Want, now: Instant) -> Case:
        """The attempt that ends a run because a person wants that."""
        how = self._policy, self.epoch
        return new_case(seat, Cause.PERSON, how, now, message=f"{seat.name} was {_PEOPLE[want]}")

    def lost_its_cards(self, seat: JobSeat, now: Instant) -> Case:
        """The attempt that ends a run whose node or cards are not there any more."""
        how = self._policy, self.epoch
        return new_case(seat, Cause.CARDS_GONE, how, now, message=f"the cards of {seat.name} are not there any more")

    def _decide(self, wants: Mapping[str, Short], scene: Scene, made: Made, now: Instant) -> None:
        usual = scene.usual()
        self._drains = {name: self._drains.get(name, now) for name in usual.drains}
        seats = [self._seats[name] for name in sorted(self._lists.waiting)]
        room = self._room(scene.hungry, [*usual.resources, *(seat.job.policy.resources for seat in seats if seat.job)])
        if seats or self._lists.growing:
            self._start(seats, room, made, now)
        self.gangs = find_gangs(self._sight(), [seat for seat in seats if seat.name not in made.started], now)
        asked = ask_to_yield(self._sight(), {**wants, **self.gangs}, room, now)
        self.refusals = dict(asked.refusals)
        made.cases += asked.cases
        made.needless += asked.needless
        self._look_at += [] if asked.again_at is None else [asked.again_at]

    def _sight(self) -> Sight:
        return Sight(
            seats=self._seats, mirror=self._mirror, claims=self._claims, policy=self._policy, epoch=self.epoch,
            drains=self._drains, opened=frozenset(self.opened), gangs=self.gangs, refusals=self.refusals,
        )  # fmt: skip

    # Who is started.

    def _start(self, seats: Sequence[JobSeat], room: Room, made: Made, now: Instant) -> None:
        """Start those that have room, and have had it for long enough; and likewise with more members."""
        waiting = sorted(
            (waiting_job(seat, self._claims, self._policy, now) for seat in seats), key=lambda one: turn(one, now)
        )
        self._lists.aged = {one.seat.name for one in waiting if one.aged}
        growing = [
            waiting_job(self._seats[name], self._claims, self._policy, now) for name in sorted(self._lists.growing)
        ]
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
                made.hear(seat, *why_not(one, room, lacks[need]))
                continue
            seat.fits_since = now if seat.fits_since is None else seat.fits_since
            due, why, words = (now, Because.SETTLES, "") if one.claimed or one.kept else due_of(seat, self._policy, now)
            if now < due:
                self._look_at.append(due)
                made.hear(seat, why, words)
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
        self._lists.start(seat.name)
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


_PEOPLE = {
    Want.PAUSED: "paused", Want.CANCELLED: "cancelled", Want.DELETED: "deleted", Want.REPLACED: "declared anew",
}  # fmt: skip
