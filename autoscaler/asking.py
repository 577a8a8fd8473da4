"""Asking a model's own policy in another process: what it asks is found out here, and its answer put in its place.

`decide` is pure and may change what a policy sees (a schedule, a mode); so it is run once up to the point where it
would ask, and, when the answer is there, once more with the answer. The record is as if it had been called in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from autoscaler.core.decide import decide
from autoscaler.core.model import Decision, Snapshot
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant


@dataclass(frozen=True, slots=True)
class Question:
    """What the policy at `path` is to be called with."""

    path: str
    snapshot: Snapshot
    policy: ScalingPolicy
    now: Instant


class _Asked(Exception):
    """The policy would be asked now."""

    def __init__(self, question: Question) -> None:
        self.question = question


def question_of(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Question | None:
    """What the model's own policy is to be asked; None: it is not asked (the model is paused, or deleted)."""

    def ask(seen: Snapshot, resolved: ScalingPolicy, at: Instant) -> NoReturn:
        raise _Asked(Question(policy.name, seen, resolved, at))

    try:
        decide(snapshot, policy, now, ask)
    except _Asked as asked:
        return asked.question
    return None


def answered(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, answer: Decision | Exception) -> Decision:
    """The decision with the policy's answer in its place. Raises the answer when it is an error."""

    def tell(_seen: Snapshot, _resolved: ScalingPolicy, _at: Instant) -> Decision:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return decide(snapshot, policy, now, tell)
