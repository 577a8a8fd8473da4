"""The autoscaler on a simulated clock: the live estate, agenda and decider, driven by hand instead of by tasks.

Events are folded as the live loop folds them, decided by the same code at the same instants, and what must be recorded
is recorded; only the log between is left out, and takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.model import Decision, Policy
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import Declared
from autoscaler.deciding import Decider
from autoscaler.estate import Estate
from autoscaler.loop import DECIDE_SLICE
from autoscaler.own import own_policy
from autoscaler.schedules import schedules_of
from autoscaler.settings import AutoscalerSettings
from events.envelope import Envelope
from events.log import Position, Record
from events.units import Instant

UID: Final = "simulated"
KNOWN_BEFORE: Final = 3600.0
"""Seconds before the beginning of which it is known that nobody asked."""

Wished = Callable[[str, Decision, ScalingPolicy, Instant], None]
"""Told of each recorded wish."""


class Scaler:
    """`wished` is called with every wish that goes on record, as the allocator would read it."""

    def __init__(self, now: Instant, wished: Wished, own: Mapping[str, Policy]) -> None:
        settings = AutoscalerSettings()
        self._agenda = Agenda()
        self._estate = Estate(self._agenda, settings.tick)
        self._decider = Decider(self._estate, self._agenda, settings, lambda name: own.get(name) or own_policy(name))
        self._wished = wished
        self._offset = 1
        tenure = self._estate.begin(0, 0)
        self._fold = tenure.fold
        self._estate.know_states(tenure, now)
        self._estate.know_past(tenure, Instant(now - KNOWN_BEFORE), now)
        self.recorded = 0

    @property
    def decided(self) -> int:
        """Decisions taken."""
        return self._decider.decided

    @property
    def policy_failures(self) -> int:
        """Decisions that raised."""
        return self._decider.policy_failures

    def declare(self, model: str, policy: ScalingPolicy, now: Instant) -> None:
        """A model, as its declaration would make it."""
        declared = Declared(UID, 1, policy, schedule=schedules_of(policy.schedules))
        self._fold.declare(model, declared, now)
        self._agenda.urgent(model)

    def take(self, data: object, model: str, source: str, now: Instant) -> None:
        """An event comes out of the log."""
        self._offset += 1
        envelope = Envelope(id="", source=source, subject="", key=model, time=now, data=data)
        self._estate.fold(Record(Position("", 0, self._offset), now, envelope), now)

    def next_at(self) -> Instant | None:
        """When something is to be decided."""
        return self._agenda.next_at()

    def work(self, now: Instant) -> None:
        """Decide what is due, until nothing is."""
        while True:
            due = self._agenda.next_at()
            if due is None or due > now:
                return
            for model in self._agenda.take(now, DECIDE_SLICE):
                taken = self._decider.decide(model, now)
                if taken is None:
                    continue
                self._offset += 1
                self.recorded += 1
                self._decider.on_record(taken, Position("", 0, self._offset), now)
                self._wished(model, taken.decision, taken.declared.policy, now)
