"""One training job's seat: what is declared, granted and seen of it, and the attempts to have it yield."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from events.types.grants import Placement
from events.types.training import CheckpointStatus, Ending, MemberGrant, RunState, TrainingGranted, TrainingObserved
from events.units import Instant, Seconds
from preemption.core.attempts.states import State
from preemption.core.inventory import Holding, need_of
from preemption.core.lending.case import Case, Cause
from preemption.core.reclaim.pricing import HOUR
from preemption.core.reclaim.usual import UsualTimes
from preemption.core.training import TrainingPolicy

ROOMS_KEPT: Final = 8
"""Of how many times that there was room for a job it is remembered how long that lasted."""

YIELDS_KEPT: Final = 64
"""Instants at which a job had to yield that are remembered: more than an hour of the tightest cool-down in use."""


class Want(StrEnum):
    """What a job should do, and why."""

    RUN = "runs"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    REPLACED = "declared_anew"
    """What runs is of a declaration that was deleted; another job has the name now."""
    FINISHED = "finished"
    FAILS = "failed_too_often"
    BACKS_OFF = "starts_back_off"


_GO_ON: Final = frozenset({Cause.SHORTAGE, Cause.GROWS})
"""Causes after which members that were not taken go on."""

ASKED_BY_PEOPLE: Final = frozenset({Want.PAUSED, Want.CANCELLED, Want.DELETED, Want.REPLACED})
"""Because of these, a run must checkpoint and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A declaration of a training job, as it concerns the allocator. `at`: when it was declared so. `forgiven`:
    failures of runs up to this one count no more."""

    policy: TrainingPolicy
    uid: str
    revision: int
    at: Instant
    paused: bool = False
    cancelled: bool = False
    deleted: bool = False
    forgiven: int = 0

    @property
    def name(self) -> str:
        """The job's name."""
        return self.policy.job

    @property
    def stopped(self) -> bool:
        """Whether a person does not want it to run."""
        return self.paused or self.cancelled or self.deleted


@dataclass(slots=True)
class JobSeat:
    """What is known of one job, and what is decided for it. Owned and changed by `Lender`."""

    name: str
    usual: UsualTimes = field(default_factory=UsualTimes)
    """How long jobs take to save and to come back; the lender's, of all of them."""
    job: Job | None = None
    grant: TrainingGranted | None = None
    observed: TrainingObserved | None = None
    runs_before: int = 0
    """Runs of a job that had the name before, and was forgotten."""
    open: dict[str, Case] = field(default_factory=dict)
    """Its attempts that have not ended, by id. One governs its run; others wait for the job to come back."""
    past: tuple[tuple[Instant, str], ...] = ()
    """When a job of this name had to yield for a shortage, within the last hour, and its uid."""
    waiting_since: Instant | None = None
    waited: Seconds = Seconds(0.0)
    """How long it waited for its present run."""
    started_at: Instant | None = None
    """When its present run was granted by us."""
    fits_since: Instant | None = None
    """Since when it could have been started; None: it cannot be now."""
    room_since: Instant | None = None
    """Since when there was room for its present run."""
    rooms: tuple[tuple[Instant, Seconds], ...] = ()
    """Until when there was room for it that a demand then took, and how long that had lasted; the newest."""
    grows_since: Instant | None = None
    """Since when there has been room for more of its members than run; None: there is none."""
    misplaced: bool = False
    """Whether its run's node or cards are not there any more."""
    held: frozenset[str] = frozenset()
    told: tuple[tuple[str, ...], str] = ((), "")
    """Reasons and message of a job that waits."""
    last_attempt: str = ""
    tried: dict[str, int] = field(default_factory=dict)
    """By attempt: the run that was to bring the job back from it."""
    progress_at: float = 0.0
    """The newest progress of a save that counted already."""

    @property
    def run(self) -> int:
        """The newest run that was granted; 0: none."""
        return 0 if self.grant is None else self.grant.run

    @property
    def next_run(self) -> int:
        """The number of the next one."""
        return 1 + max(self.run, self.runs_before, 0 if self.observed is None else self.observed.run)

    @property
    def seen(self) -> TrainingObserved | None:
        """What is seen of the run that was granted last; None: nothing yet."""
        if self.observed is None or self.grant is None or self.observed.run != self.grant.run:
            return None
        return self.observed if self.observed.uid == self.grant.uid else None

    @property
    def blocked(self) -> bool:
        """Whether something, such as a disruption budget, forbids to end its run by force."""
        return self.seen is not None and bool(self.seen.blocked) and self.seen.state is not RunState.ENDED

    @property
    def granted(self) -> tuple[MemberGrant, ...]:
        """The members that may run now."""
        return () if self.grant is None else self.grant.members

    @property
    def alive(self) -> bool:
        """Whether a run may be running that we have not given up, as far as we know."""
        if not self.granted or self.given_up:
            return False
        return self.seen is None or self.seen.state is not RunState.ENDED

    @property
    def empty(self) -> bool:
        """Whether nothing of any run holds cards any more."""
        return not self.occupied()

    @property
    def priority(self) -> int:
        """As declared."""
        return 0 if self.job is None else self.job.policy.priority

    def occupied(self) -> dict[str, Holding]:
        """What its runs hold, by name in the ledger: all that is granted until it is seen empty, all that is seen
        and not seen empty, and what it keeps from a run that has ended for the next."""
        held: dict[str, Holding] = {}
        if self.observed is not None and self.observed.empty_at is None:
            for status in self.observed.members:
                placement = Placement(node=status.node, gpus=status.gpus)
                held[holding_name(status.member)] = Holding(placement, need_of(status.resources))
        if self.seen is None or self.seen.empty_at is None:
            held |= holdings_of(self.granted)
        held |= holdings_of(self.kept)
        return held

    def want(self, now: Instant) -> Want:
        """What it should do by itself."""
        job = self.job
        assert job is not None
        seen = self.observed if self.observed is not None and self.observed.uid == job.uid else None
        rules = (
            (job.deleted, Want.DELETED),
            (bool(self.granted) and self.grant is not None and self.grant.uid != job.uid, Want.REPLACED),
            (seen is not None and seen.ending is Ending.FINISHED, Want.FINISHED),
            (job.cancelled, Want.CANCELLED),
            (job.paused, Want.PAUSED),
        )
        asked = next((want for broken, want in rules if broken), None)
        if asked is not None or seen is None or not seen.failures or seen.run <= job.forgiven:
            return asked or Want.RUN
        if seen.failures >= job.policy.max_failures:
            return Want.FAILS
        return Want.BACKS_OFF if seen.retry_at is not None and seen.retry_at > now else Want.RUN

    def recent(self, now: Instant) -> int:
        """How often it had to yield within the last hour."""
        return len(self.yields(now))

    def yields(self, now: Instant) -> tuple[Instant, ...]:
        """When it had to yield within the last hour; older times are forgotten. A time that is still to come, as a
        leader wrote whose clock was ahead, is now: so it counts for an hour from the first look, and no longer."""
        self.past = tuple((min(at, now), uid) for at, uid in self.past if now - at < HOUR)[-YIELDS_KEPT:]
        return self.yielded

    @property
    def yielded(self) -> tuple[Instant, ...]:
        """When it had to yield. One that had the name before, and was deleted, is another job."""
        return tuple(at for at, uid in self.past if self.job is None or uid == self.job.uid)

    def had_to_yield(self, at: Instant, uid: str) -> None:
        """The job of this uid had to; twice is as once."""
        if (at, uid) not in self.past:
            self.past = tuple(sorted((*self.past, (at, uid))))

    def room_ended(self, since: Instant | None, now: Instant) -> None:
        """Room that there was for it since then has been asked for."""
        if since is not None:
            self.rooms = (*self.rooms, (now, Seconds(max(0.0, now - since))))[-ROOMS_KEPT:]

    def lasted(self, now: Instant) -> tuple[Seconds, ...]:
        """How long room for it lasted within the last hour, the shortest first."""
        return tuple(sorted(lasted for at, lasted in self.rooms if now - at < HOUR))

    def spent_until(self, now: Instant) -> Instant | None:
        """Until when it has spent its budget, so that nobody may ask it to yield; None: it has not."""
        most = 0 if self.job is None else self.job.policy.budget_per_hour
        return Instant(self.yielded[-most] + HOUR) if most and self.recent(now) >= most else None

    @property
    def holding(self) -> tuple[Case, ...]:
        """Its attempts that hold cards, the oldest first. (One of a run that gave up some of its members may last into
        the next run, which has begun without them.)"""
        able = (case for case in self.open.values() if case.governs)
        return tuple(sorted(able, key=lambda case: (case.run, case.attempt.since)))

    @property
    def governing(self) -> Case | None:
        """The attempt that its present run follows."""
        return next((case for case in reversed(self.holding) if case.run == self.run), None)

    @property
    def kept(self) -> tuple[MemberGrant, ...]:
        """The members with whose cards it goes on at once, after all have saved and ended; none: it does not.

        It does not when a person wants otherwise, or what is left is not what it is declared to run on.
        """
        case, job = self.governing, self.job
        if case is None or case.state is not State.CLAIMED or case.cause not in _GO_ON or job is None:
            return ()
        if self.misplaced or self.grant is None or self.grant.uid != job.uid or job.stopped or self._fails(job):
            return ()
        gone = {one.member for one in case.members}
        kept = tuple(one for one in self.granted if one.member not in gone)
        fits = all(one.resources == job.policy.resources for one in kept)
        return kept if fits and job.policy.min_members <= len(kept) <= job.policy.members else ()

    @property
    def saved(self) -> CheckpointStatus | None:
        """The newest checkpoint of its present run that was verified."""
        seen = self.seen
        return None if seen is None or seen.checkpoint is None or not seen.checkpoint.verified else seen.checkpoint

    @property
    def may_grow(self) -> bool:
        """Whether it runs with fewer members than it could, and has a checkpoint to be started again from: if nothing
        else is going on with it, or just that."""
        job, case = self.job, self.governing
        if job is None or not self.alive or self.misplaced or self.grant is None or self.grant.uid != job.uid:
            return False
        others = [one for one in self.open.values() if one is not case]
        if self.saved is None or others or (case is not None and case.cause is not Cause.GROWS):
            return False
        same = all(one.resources == job.policy.resources for one in self.granted)
        return same and job.policy.min_members <= len(self.granted) < job.policy.members

    def _fails(self, job: Job) -> bool:
        seen = self.seen
        return seen is not None and seen.run > job.forgiven and seen.failures >= job.policy.max_failures

    @property
    def given_up(self) -> bool:
        """Whether an attempt is over with its present run, whatever is still seen of it."""
        return any(case.run == self.run and not case.governs for case in self.open.values())

    def observe(self, seen: TrainingObserved) -> bool:
        """Take what the adapter says, unless it is older than what is known: an ended run does not come back."""
        known = self.observed
        if known is not None and known.uid == seen.uid and _rank(seen) < _rank(known):
            return False
        self.observed = seen
        return True

    @property
    def over(self) -> bool:
        """Whether there is nothing more to know or to do."""
        if self.open or self.granted or not self.empty:
            return False
        return self.job is None or self.job.deleted


def holding_name(member: str) -> str:
    """A member's name in the ledger. (A replica's name has no slash.)"""
    return f"training/{member}"


def holdings_of(members: tuple[MemberGrant, ...]) -> Mapping[str, Holding]:
    """What granted members hold, by name in the ledger."""
    return {holding_name(one.member): Holding(one.placement, need_of(one.resources)) for one in members}


def _rank(seen: TrainingObserved) -> tuple[int, bool, bool]:
    return seen.run, seen.state is RunState.ENDED, seen.empty_at is not None
