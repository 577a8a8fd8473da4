"""`decide(snapshot, policy, now)`: the policy by its name, held to the bounds. Nothing here knows what a process is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoscaler.core.model import Decision, Policy, Reason, Snapshot, in_order
from autoscaler.core.policies import relume
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant, Seconds

POLICIES: Final[Mapping[str, Policy]] = {"relume": relume.decide}
"""The policies that `scaling.policy` may name."""

LOOK_AGAIN_AFTER_TROUBLE = Seconds(30.0)
"""When a model without a working policy is looked at again."""


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """What should be: always the same for the same arguments. A policy's own errors come through (see `hold`)."""
    if snapshot.deleted:
        return Decision(replicas=0, reasons=(Reason.DELETED,), memory=snapshot.memory)
    chosen = POLICIES.get(policy.name)
    if chosen is None:
        return hold(snapshot, policy, now, Reason.POLICY_UNKNOWN)
    return _bounded(chosen(snapshot, policy, now), policy)


def hold(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, why: Reason) -> Decision:
    """The last wish stands, within the bounds; but whoever waits wakes the model, whatever is broken."""
    replicas = snapshot.replicas.ready + snapshot.replicas.starting if snapshot.wished is None else snapshot.wished
    if snapshot.demand.running + snapshot.demand.waiting:
        replicas = max(1, replicas)
    again_at = Instant(now + LOOK_AGAIN_AFTER_TROUBLE)
    return _bounded(Decision(replicas=replicas, reasons=(why,), memory=snapshot.memory, again_at=again_at), policy)


def _bounded(decision: Decision, policy: ScalingPolicy) -> Decision:
    if policy.min_replicas <= decision.replicas <= policy.max_replicas:
        return decision
    replicas = max(policy.min_replicas, min(policy.max_replicas, decision.replicas))
    bound = Reason.AT_LEAST_MIN if replicas > decision.replicas else Reason.AT_MOST_MAX
    return replace(decision, replicas=replicas, reasons=in_order({*decision.reasons, bound}))
