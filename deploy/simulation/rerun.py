"""What another policy would have wished on a relume's own log.

The live fold, agenda and decision on a simulated clock, fed with what the log has of a model: its gateways' windows,
the numbers from outside, and its replicas as they were. So windows, keep-alives, forecasts, promises and signals are
the new policy's own, and it decides at its own instants, not only when the other one did. What its wishes would have
changed of demand and replicas is not in the log. (Beats of gateways are left out, 86,400 a day: of a gateway that died
with requests it is not known for ten minutes that these are over.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.core.model import Decision, Policy, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.own import own_policy
from deploy.simulation.scaling import UID, Scaler
from events.envelope import AnyEnvelope
from events.types.replicas import ReplicasObserved
from events.types.requests import RequestWindow
from events.units import Instant

TOPICS: Final = ("relume.requests", "relume.metrics", "relume.replicas")
"""Where the log has what decisions about a model are made of."""

_REVISION: Final = 1
"""Of all that is replayed: which revision served does not change what is wished."""


@dataclass(frozen=True, slots=True)
class Of:
    """What is replayed: a model under one declaration, from one instant to another. Before, nobody asked for it."""

    model: str
    uid: str
    since: Instant
    until: Instant


@dataclass(frozen=True, slots=True)
class Would:
    """From `at` on it would have wished so many, for these reasons."""

    at: Instant
    replicas: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Rerun:
    """`begins`: nothing was replayed before. `wishes` by time."""

    begins: Instant
    wishes: tuple[Would, ...]
    decided: int

    def at(self, instant: float) -> Would | None:
        """What it would have wished then; None before the first wish."""
        return next((one for one in reversed(self.wishes) if one.at <= instant), None)

    def about(self, instant: float, within: float) -> tuple[Would, ...]:
        """All that it would have wished at any time so close to then."""
        stood = self.at(instant - within)
        came = (one for one in self.wishes if instant - within < one.at <= instant + within)
        return (*(() if stood is None else (stood,)), *came)

    def replica_seconds(self, until: float) -> float:
        """All that it would have wished, until then."""
        ends = [*(float(one.at) for one in self.wishes[1:]), until]
        return sum(
            max(0.0, min(end, until) - one.at) * one.replicas for one, end in zip(self.wishes, ends, strict=False)
        )


def first_window(events: Iterable[AnyEnvelope], uid: str) -> Instant | None:
    """When the first window of this declaration was told; None: the log has none."""
    times = [one.time for one in events if isinstance(one.data, RequestWindow) and one.data.uid == uid]
    return min(times, default=None)


def rerun(events: Sequence[AnyEnvelope], of: Of, policy: ScalingPolicy) -> Rerun:
    """Raises OwnPolicyFailed as soon as a user's policy does."""
    start, until, uid, model = of.since, of.until, of.uid, of.model
    wishes: list[Would] = []
    broken: list[Exception] = []

    def wished(_: str, decision: Decision, __: ScalingPolicy, now: Instant) -> None:
        wishes.append(Would(now, decision.replicas, decision.reasons))

    own = {} if (chosen := own_policy(policy.name)) is None else {policy.name: _telling(chosen, broken)}
    scaler = Scaler(start, wished, own)
    scaler.declare(model, policy, start)
    last = start
    for one in sorted(events, key=lambda one: one.time):
        if one.time > until or broken:
            break
        now = max(start, one.time)  # what stood before is taken as it was then
        _pass(scaler, last, now)
        last = now
        data = _ours(one.data, uid)
        if data is not None:
            scaler.take(data, model, one.source, now)
            scaler.work(now)
    _pass(scaler, last, until)
    if broken:
        raise broken[0]
    return Rerun(start, tuple(wishes), scaler.decided)


def _pass(scaler: Scaler, last: Instant, until: Instant) -> None:
    """Time passes: what becomes due is decided at its time."""
    while (due := scaler.next_at()) is not None and due <= until:
        scaler.work(max(due, last))


def _ours(data: object, uid: str) -> object | None:
    """As of the declaration that is replayed; None: of another one."""
    if isinstance(data, RequestWindow):
        return replace(data, uid=UID, revision=_REVISION) if data.uid == uid else None
    if not isinstance(data, ReplicasObserved):
        return data
    if data.uid != uid:
        return None
    return replace(data, uid=UID, replicas=tuple(replace(one, uid=UID, revision=_REVISION) for one in data.replicas))


def _telling(chosen: Policy, broken: list[Exception]) -> Policy:
    def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        try:
            return chosen(snapshot, policy, now)
        except Exception as error:
            broken.append(error)
            raise

    return decide
