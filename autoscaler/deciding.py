"""Deciding one model: from its view to a decision that stands, or that must be recorded first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from autoscaler.asking import answered as with_answer
from autoscaler.asking import question_of
from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import LOOK_AGAIN_AFTER_TROUBLE, decide, hold
from autoscaler.core.model import Decision, Policy, Reason, Snapshot, in_order
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import NO_MEMORY, Declared, ModelView
from autoscaler.estate import Estate, Tenure
from autoscaler.own import OwnPolicyFailed, own_policy
from autoscaler.ports import OwnPolicies
from autoscaler.settings import AutoscalerSettings
from events.kinds import carrier
from events.log import Position
from events.units import Instant

logger = logging.getLogger(__name__)

FAILURES_MOST: Final = 5
"""A model's own policy that failed so often in a row is replaced by relume's, until the model is applied anew. Chosen:
the failures are `LOOK_AGAIN_AFTER_TROUBLE` or an edge apart, so a short trouble of what it asks is no reason."""

OWN_MOST: Final = 10_000
"""Models whose failing policies are counted; the one that failed least lately makes room."""

GRAIN: Final = 0.02
"""Timers of quiet models are rounded up to this many seconds, so that one alarm serves many."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where own policies are asked, and who is to be woken once there is an answer."""

    policies: OwnPolicies
    wake: Callable[[], None]


@carrier
class Taken:
    """A decision that is still to be recorded, with what it was taken from."""

    tenure: Tenure
    view: ModelView
    declared: Declared
    snapshot: Snapshot
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Answered:
    """The answer of a model's own policy, with what it was asked for."""

    tenure: Tenure
    view: ModelView
    declared: Declared
    snapshot: Snapshot
    answer: Decision | OwnPolicyFailed


class Decider:
    """Decides the models of the estate, one at a time. `own` finds the policies that are not relume's own by name; with
    `elsewhere` they are asked there instead, and `answers` has what came of it, once `elsewhere` has called."""

    def __init__(
        self, estate: Estate, agenda: Agenda, settings: AutoscalerSettings,
        own: Callable[[str], Policy | None] = own_policy, elsewhere: Elsewhere | None = None,
    ) -> None:  # fmt: skip
        self._estate = estate
        self._agenda = agenda
        self._settings = settings
        self.decided = self.policy_failures = 0
        self._own = _OwnPolicies()
        self._find_own = own
        self._elsewhere = elsewhere
        self._answers: list[_Answered] = []

    def decide(self, model: str, now: Instant) -> Taken | None:
        """Decide one model. Returns what must be recorded before it counts."""
        found = self._estate.find(model)
        if found is None:
            return None
        tenure, view = found
        if view.recording:
            view.dirty = True
            return None
        try:
            snapshot = view.snapshot(now, tenure.fold.world)
        except Exception:  # what is known of one model must not stop the loop for the others
            self.policy_failures += 1
            logger.exception("%s cannot be decided; its last wish stands", model)
            self._agenda.at(model, Instant(now + LOOK_AGAIN_AFTER_TROUBLE))
            return None
        if view.declared is None or snapshot is None:
            return None
        if self._elsewhere is not None and ":" in view.declared.policy.name and self._ask(tenure, view, snapshot):
            return None
        decision = self._decision(snapshot, view.declared.policy, now)
        return self._settle(Taken(tenure, view, view.declared, snapshot, decision), now)

    @property
    def answered(self) -> bool:
        """Whether there are answers."""
        return bool(self._answers)

    def answers(self, now: Instant) -> list[Taken]:
        """What own policies have answered since: what must be recorded of it."""
        answers, self._answers = self._answers, []
        return [taken for one in answers if (taken := self._answered(one, now)) is not None]

    def _ask(self, tenure: Tenure, view: ModelView, snapshot: Snapshot) -> bool:
        """Have the model's own policy asked elsewhere; nothing else is decided of it meanwhile. False: no need."""
        declared = view.declared
        assert declared is not None
        if self._own.replaced(snapshot, declared.policy) or self._elsewhere is None:
            return False
        question = question_of(snapshot, declared.policy, Instant(snapshot.taken_at))
        if question is None:
            return False
        view.recording, wake = True, self._elsewhere.wake

        def told(answer: Decision | OwnPolicyFailed) -> None:
            self._answers.append(_Answered(tenure, view, declared, snapshot, answer))
            wake()

        self._elsewhere.policies.ask(question, told)
        return True

    def _answered(self, one: _Answered, now: Instant) -> Taken | None:
        """The decision that the answer makes, unless it is for another model or declaration by now."""
        view = one.view
        if one.tenure.fold.models.get(view.model) is not view or one.tenure.lost.is_set():
            return None
        view.recording = False
        if view.declared is not one.declared:
            view.dirty = False
            self._agenda.urgent(view.model)
            return None
        decision = self._decision(one.snapshot, one.declared.policy, Instant(one.snapshot.taken_at), one.answer)
        taken = self._settle(Taken(one.tenure, view, one.declared, one.snapshot, decision), now)
        if taken is None and view.dirty:
            view.dirty = False
            self._agenda.urgent(view.model)
        return taken

    def _settle(self, taken: Taken, now: Instant) -> Taken | None:
        """What was decided stands, or must be recorded first: that is returned."""
        view, decision = taken.view, taken.decision
        self.decided += 1
        record_at = view.record_at(decision, now, self._settings.reasons_every)
        if record_at == now:
            view.recording = True  # decided again only when this is on record
            return taken
        self._stand(taken, now)
        if record_at is not None:
            self._agenda.at(view.model, record_at)
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

    def not_recordable(self, one: Taken, error: Exception, now: Instant) -> None:
        """No event can say the wish: it is too large, or has a number that JSON lacks. The one before stands, and what
        was remembered is dropped, since nothing else can be without measure."""
        view = one.view
        self.policy_failures += 1
        self._own.failed(one.snapshot, one.declared.policy)
        logger.error("a decision of %s cannot be recorded; its last wish stands: %s", view.model, error)
        if one.tenure.fold.models.get(view.model) is view:
            view.recording, view.dirty, view.unsure = False, False, True
            view.memory = NO_MEMORY
            self._agenda.at(view.model, Instant(now + LOOK_AGAIN_AFTER_TROUBLE))

    def _decision(
        self, snapshot: Snapshot, policy: ScalingPolicy, now: Instant, answer: Decision | OwnPolicyFailed | None = None
    ) -> Decision:
        """`answer`: what the model's own policy said, where it was asked elsewhere."""
        if self._own.replaced(snapshot, policy):
            decision = decide(snapshot, replace(policy, name="relume", options=None), now)
            return replace(decision, reasons=in_order({*decision.reasons, Reason.POLICY_REPLACED}))
        try:
            if answer is None:
                decision = decide(snapshot, policy, now, self._find_own(policy.name))
            else:
                decision = with_answer(snapshot, policy, now, answer)
        except Exception:  # a policy's bug must not stop the loop for the other models
            self.policy_failures += 1
            self._own.failed(snapshot, policy)
            logger.exception("policy %s failed for %s; its last wish stands", policy.name, snapshot.model)
            return hold(snapshot, policy, now, Reason.POLICY_FAILED)
        self._own.worked(snapshot, policy)
        return decision

    def _stand(self, taken: Taken, now: Instant) -> None:
        """The decision stands: it is on record, or says nothing new."""
        view, decision = taken.view, taken.decision
        if taken.declared.deleted:
            taken.tenure.fold.forget(view.model)
            return
        view.decided(decision, now)
        if decision.again_at is not None:
            self._agenda.at(view.model, Instant(ceil(decision.again_at / GRAIN) * GRAIN))


class _OwnPolicies:
    """How often in a row each model's own policy has failed. Only of models that have one and where it failed."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str, ScalingPolicy], int] = {}

    def replaced(self, snapshot: Snapshot, policy: ScalingPolicy) -> bool:
        """Whether relume decides in its place."""
        return bool(self._failures) and self._failures.get((snapshot.model, snapshot.uid, policy), 0) >= FAILURES_MOST

    def failed(self, snapshot: Snapshot, policy: ScalingPolicy) -> None:
        """Once more. Of a model only what is declared now is remembered, and of all models a bounded number."""
        if ":" not in policy.name:
            return
        key = (snapshot.model, snapshot.uid, policy)
        count = self._failures.pop(key, 0) + 1
        for old in [one for one in self._failures if one[0] == snapshot.model]:
            del self._failures[old]
        if len(self._failures) >= OWN_MOST:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = count

    def worked(self, snapshot: Snapshot, policy: ScalingPolicy) -> None:
        """It answered."""
        if self._failures:
            self._failures.pop((snapshot.model, snapshot.uid, policy), None)
