"""What the planner sees and says: training jobs, a shortage, what is coming, and a plan with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from events.units import Instant, Seconds
from preemption.core.gpus.shapes import Spot, Task


@dataclass(frozen=True, slots=True)
class Held:
    """One placed piece of work: what it takes, and where."""

    task: Task
    spot: Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job that runs.

    `members` are its gang, in the order in which surplus ones are kept: the last go first. With fewer than
    `min_members` it cannot go on. `worth` is what its cards are worth together in A100s. `last_commit_at` None: it
    never reported a committed checkpoint, so all since `started_at` is at stake. `save` and `restore` are estimates of
    its next save, and of coming back. `preempted_at`: when it had to yield before. `parked`: how long it waited for
    cards in all.
    """

    name: str
    members: tuple[Held, ...]
    started_at: Instant
    last_commit_at: Instant | None = None
    priority: int = 0
    worth: float = 1.0
    save: Seconds = Seconds(60.0)
    restore: Seconds = Seconds(60.0)
    min_members: int = 0
    preempted_at: tuple[Instant, ...] = ()
    min_run: Seconds = Seconds(0.0)
    budget_per_hour: int = 6
    parked: Seconds = Seconds(0.0)
    protected: bool = False
    """Its owner forbids that it is preempted."""
    yielding: bool = False
    """It was told to yield, or its pods are going: what it holds is coming (`Coming`), and it is asked for nothing
    more."""

    @property
    def needs(self) -> int:
        """Members without which it cannot go on: all, unless it said fewer."""
        return self.min_members or len(self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """So many replicas of one kind are wished for and have no place: all of them, or none.

    `deadline` is when they are wanted at the latest, None: no matter when. `worth`: what one replica's cards are worth
    in A100s.
    """

    name: str
    task: Task
    count: int
    priority: int
    since: Instant
    deadline: Instant | None = None
    worth: float = 1.0


@dataclass(frozen=True, slots=True)
class Coming:
    """What will be free without a new victim: at `at`, these places. `yielding`: somebody was told, or is going; else
    it is an expectation (a job's end, a node that joins)."""

    at: Instant
    freed: tuple[Held, ...]
    yielding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimPolicy:
    """Plain numbers of the planner. All are chosen, unless a source is named.

    `thrash`: seconds of a job's work that it costs in addition for each time it had to yield within `window`.
    `cool_down`: after having yielded a job is left alone so long. `pool_budget`: victims of the whole pool an hour.
    `waiting`: what it costs that one A100's worth of the shortage waits for a second, in A100-seconds of training.
    `yield_time`: what a reclaim takes beside the save: acknowledging, stopping, seeing the card empty, binding.
    `shrink`: what it costs more to take a member of an elastic job that could go on, in seconds of that member's work:
    it waits for as long as the shortage lasts, at the least.
    `age_every`, `most_boost`: a parked job's priority grows by one each time so long, up to so much.
    """

    thrash: Seconds = Seconds(300.0)
    window: Seconds = Seconds(3600.0)
    cool_down: Seconds = Seconds(600.0)
    pool_budget: int = 120
    waiting: float = 10.0
    yield_time: Seconds = Seconds(5.0)
    shrink: Seconds = Seconds(60.0)
    age_every: Seconds = Seconds(600.0)
    most_boost: int = 50


class Outcome(StrEnum):
    """What to do about a shortage."""

    FITS = "fits"
    """There is room now."""
    PENDING = "waits_for_yielding"
    """Who was told to yield, or is going, frees enough."""
    COMING = "waits_for_coming"
    """Enough will be free without a victim, and waiting is cheaper."""
    RECLAIMS = "reclaims"
    """The victims yield."""
    INFEASIBLE = "infeasible"
    """Not even all who may yield would free enough."""


class Why(StrEnum):
    """Why a job was taken, or was not."""

    TAKEN = "taken"
    SHRUNK = "shrunk"
    """It gives surplus members. All save, and it goes on with the others."""
    NOT_NEEDED = "not_needed"
    """Taken at first; the others free enough without it."""
    DEARER = "dearer"
    """Others cost less for what they free."""
    NO_USE = "frees_nothing_of_use"
    """None of its places could hold what is wanted, even with all others gone."""
    PRIORITY = "priority_not_lower"
    PROTECTED = "protected"
    TOO_YOUNG = "minimum_run_time"
    COOLS_DOWN = "cool_down"
    BUDGET = "budget_spent"
    YIELDING = "already_yielding"
    NOT_ASKED = "no_victim_needed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why one job was taken or not, with the numbers that said so (seconds, A100-seconds, counts)."""

    job: str
    why: Why
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Victim:
    """A job, or some members of it (indices), that must yield; what that costs in A100-seconds."""

    job: str
    members: tuple[int, ...]
    whole: bool
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimPlan:
    """What to do about one shortage. `spots`: where its replicas go once the victims are gone; empty when it waits or
    cannot be. `wait_until`: when enough will be free."""

    shortage: str
    outcome: Outcome
    spots: tuple[Spot, ...] = ()
    victims: tuple[Victim, ...] = ()
    cost: float = 0.0
    wait_until: Instant | None = None
    verdicts: tuple[Verdict, ...] = ()
