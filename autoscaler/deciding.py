"""Deciding one model: from its view to a decision that stands, or that must be recorded first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import ceil
from typing import Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import decide, hold
from autoscaler.core.model import Decision, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import Declared, ModelView
from autoscaler.estate import Estate, Tenure
from autoscaler.settings import AutoscalerSettings
from events.log import Position
from events.units import Instant

logger = logging.getLogger(__name__)

GRAIN: Final = 0.02
"""Timers of quiet models are rounded up to this many seconds, so that one alarm serves many."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A decision that is still to be recorded, with what it was taken from."""

    tenure: Tenure
    view: ModelView
    declared: Declared
    snapshot: Snapshot
    decision: Decision


class Decider:
    """Decides the models of the estate, one at a time."""

    def __init__(self, estate: Estate, agenda: Agenda, settings: AutoscalerSettings) -> None:
        self._estate = estate
        self._agenda = agenda
        self._settings = settings
        self.decided = self.policy_failures = 0

    def decide(self, model: str, now: Instant) -> Taken | None:
        """Decide one model. Returns what must be recorded before it counts."""
        found = self._estate.find(model)
        if found is None:
            return None
        tenure, view = found
        if view.recording:
            view.dirty = True
            return None
        snapshot = view.snapshot(now, tenure.fold.world)
        if view.declared is None or snapshot is None:
            return None
        decision = self._decision(snapshot, view.declared.policy, now)
        self.decided += 1
        taken = Taken(tenure, view, view.declared, snapshot, decision)
        record_at = view.record_at(decision, now, self._settings.reasons_every)
        if record_at == now:
            view.recording = True  # decided again only when this is on record
            return taken
        self._stand(taken, now)
        if record_at is not None:
            self._agenda.at(model, record_at)
        return None

    def on_record(self, one: Taken, position: Position, now: Instant) -> None:
        """A wish is on record: it counts, unless its model was declared anew meanwhile, or is not ours any more."""
        view, fold = one.view, one.tenure.fold
        if fold.models.get(view.model) is not view or one.tenure.lost.is_set():
            return
        dirty, view.recording, view.dirty = view.dirty, False, False
        newest = fold.recorded_at(view.model, position.offset)
        if view.is_of(one.declared.uid):
            view.recorded(one.decision, one.declared, now)
            view.unsure = not newest
            self._stand(one, now)
        else:
            dirty = True
        if dirty or not newest:
            self._agenda.urgent(view.model)

    def not_recorded(self, one: Taken) -> None:
        """The log failed: whether the wish stands there is not known, so the model is decided anew, and recorded."""
        view = one.view
        if one.tenure.fold.models.get(view.model) is view:
            view.recording, view.dirty, view.unsure = False, False, True
            self._agenda.urgent(view.model)

    def _decision(self, snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        try:
            return decide(snapshot, policy, now)
        except Exception:  # a policy's bug must not stop the loop for the other models
            self.policy_failures += 1
            logger.exception("policy %s failed for %s; its last wish stands", policy.name, snapshot.model)
            return hold(snapshot, policy, now, Reason.POLICY_FAILED)

    def _stand(self, taken: Taken, now: Instant) -> None:
        """The decision stands: it is on record, or says nothing new."""
        view, decision = taken.view, taken.decision
        if taken.declared.deleted:
            taken.tenure.fold.forget(view.model)
            return
        view.decided(decision, now)
        if decision.again_at is not None:
            self._agenda.at(view.model, Instant(ceil(decision.again_at / GRAIN) * GRAIN))
