"""What is known of one training job, and what follows from it: the conditions of its status."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from events.types.training import (
    Ending,
    NoticeGiven,
    NoticeMode,
    RunState,
    Stop,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from events.units import Instant
from preemption.core.attempts.states import State
from preemption.core.reclaim.goodput import Parts
from preemption.core.reclaim.usual import Usual
from preemption.core.training import TrainingPolicy

YIELDED: Final = frozenset({Ending.SAVED, Ending.TOLD})
"""Endings after which a job waits to go on."""

MOST_FAILURES: Final = TrainingPolicy(job="", command=()).max_failures
"""For a declaration of another release that does not say."""


YIELDED_STATES: Final = frozenset({State.DRAINING, State.LOST})
"""States of a reclaim from which on its job has given its cards away."""


@dataclass(slots=True)
class JobCosts:
    """What reclaims for shortages have cost a job: how often it gave its cards away, and GPU-seconds by cause."""

    preemptions: int = 0
    lost: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of one job. A grant or an observation of another uid is void and counts as None.

    `before`: the run that a deleted job of this name has left, if it has not ended or its cards are not seen empty.
    """

    declared: TrainingDeclared
    now: Instant
    granted: TrainingGranted | None = None
    observed: TrainingObserved | None = None
    costs: JobCosts = field(default_factory=JobCosts)
    parts: Parts = field(default_factory=dict)
    """What it did with the cards that it held, up to now."""
    before: TrainingObserved | None = None
    usual: tuple[Usual | None, Usual | None] = (None, None)
    """How long a save that it is asked for usually takes, and coming back."""

    @property
    def alive(self) -> bool:
        """Whether processes of it may exist."""
        return self.observed is not None and self.observed.state is not RunState.ENDED

    @property
    def ending(self) -> Ending | None:
        """How its newest run ended; None while it runs, and before the first."""
        return None if self.observed is None or self.alive else self.observed.ending

    @property
    def told(self) -> bool:
        """Whether the run that exists is told to give its cards back."""
        granted = self.granted
        if not self.alive or granted is None or self.observed is None or granted.run != self.observed.run:
            return False
        return self.notice is not None or granted.stop is not Stop.NOT

    @property
    def notice(self) -> NoticeGiven | None:
        """The notice that stands for the run that exists, unless the trainer went on after it."""
        notice, observed = self.granted.notice if self.granted else None, self.observed
        if notice is None or notice.mode is NoticeMode.WITHDRAWN:
            return None
        answered = observed.notice if observed else None
        went_on = answered is not None and answered.id == notice.id and answered.continued_at is not None
        return None if went_on else notice

    @property
    def starts(self) -> bool:
        """Whether a newer run than the observed one is granted."""
        seen = self.observed.run if self.observed else 0
        return self.granted is not None and bool(self.granted.members) and self.granted.run > seen

    @property
    def failures(self) -> int:
        """Runs that failed in a row; none once a person has it tried again."""
        return self.observed.failures if self.observed and self.observed.run > self.declared.forgiven else 0

    @property
    def gave_up(self) -> bool:
        """Whether it failed as often as it may."""
        most = self.declared.spec.get("maxFailures")
        return 0 < self.failures >= (most if isinstance(most, int) else MOST_FAILURES)


def leaves_something(seen: TrainingObserved) -> bool:
    """Whether processes of the run may exist, or its cards are not seen empty."""
    return seen.state is not RunState.ENDED or (bool(seen.members) and seen.empty_at is None)
