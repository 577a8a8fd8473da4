"""`decide(snapshot, policy, now)`: the policy by its name, held to mode, schedules and bounds.

Nothing here knows what a process is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoscaler.core import burn, capacity
from autoscaler.core.model import Decision, Memory, Policy, Reason, Snapshot, in_order
from autoscaler.core.policies import histogram, hpa, kpa, relume, simple
from autoscaler.core.policies.unknown import holding, wished
from autoscaler.core.policy import Mode, ScalingPolicy
from events.units import Instant, Seconds

POLICIES: Final[Mapping[str, Policy]] = {
    "relume": relume.decide,
    "kpa": kpa.decide,
    "keda": hpa.decide_keda,
    "hpa": hpa.decide,
    "keepalive": simple.keepalive,
    "concurrency": simple.concurrency,
    "hybrid-histogram": histogram.decide,
}
"""The policies that `scaling.policy` may name."""

LOOK_AGAIN_AFTER_TROUBLE = Seconds(30.0)
"""When a model without a working policy is looked at again."""


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, own: Policy | None = None) -> Decision:
    """What should be: always the same for the same arguments. A policy's own errors come through (see `hold`).

    `own`: the model's own policy, when its name is an import path; whoever calls has found it.
    """
    if snapshot.deleted:
        return Decision(replicas=0, reasons=(Reason.DELETED,), memory=snapshot.memory)
    if policy.mode is not Mode.AUTO:
        return _unacted(snapshot, policy, now, own)
    if snapshot.memory.recommended is not None:
        snapshot = replace(snapshot, memory=replace(snapshot.memory, recommended=None))
    decision = _decided(snapshot, policy, now, own)
    if snapshot.demand.waiting and snapshot.replicas.ready < decision.replicas:
        return Decision(
            replicas=decision.replicas, reasons=decision.reasons, memory=decision.memory, again_at=decision.again_at,
            marginal_gain=decision.marginal_gain, deadline=decision.deadline, kept=decision.kept, waits=True,
            tiers=decision.tiers,
        )  # fmt: skip
    return decision


def hold(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, why: Reason) -> Decision:
    """The last wish stands, within the bounds; but whoever waits wakes the model, whatever is broken."""
    replicas = wished(snapshot)
    if snapshot.demand.running + snapshot.demand.waiting:
        replicas = max(1, replicas)
    again_at = Instant(now + LOOK_AGAIN_AFTER_TROUBLE)
    return _bounded(Decision(replicas=replicas, reasons=(why,), memory=snapshot.memory, again_at=again_at), policy)


def _decided(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, own: Policy | None) -> Decision:
    chosen = POLICIES.get(policy.name) or (None if own is None else _careful(own))
    if chosen is None:
        return hold(snapshot, policy, now, Reason.POLICY_UNKNOWN)
    plain = snapshot.schedule_changes_at is None and snapshot.burn is None and not policy.learns
    if plain and not snapshot.memory.burn_floor:
        return _bounded(chosen(snapshot, policy, now), policy)
    return _floored(snapshot, policy, now, chosen)


def _careful(own: Policy) -> Policy:
    """A user's policy, which takes nothing away by what is not known."""

    def careful(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        return holding(snapshot, own(snapshot, policy, now))

    return careful


def _floored(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, chosen: Policy) -> Decision:
    """Under a schedule or an objective: at least what they want, which only adds; and for the target what was learned
    that a replica bears."""
    learned = capacity.learn(snapshot.memory.capacity, _evidence(snapshot), policy, snapshot.revision, now)
    policy = capacity.bearable(policy, learned)
    floor = burn.floor(snapshot, policy, now)
    scheduled = min(snapshot.scheduled, policy.max_replicas)
    tokens = min(capacity.token_floor(learned, snapshot.served, now), policy.max_replicas)
    least = max(policy.min_replicas, scheduled, floor.replicas, tokens)
    raised = policy if least == policy.min_replicas else replace(policy, min_replicas=least)
    decision = _bounded(chosen(snapshot, raised, now), raised)
    failing = burn.burns(snapshot.failing)
    if (
        raised is policy
        and floor is burn.NO_FLOOR
        and learned is None
        and not failing
        and _whole(decision, snapshot, now)
    ):
        return decision
    reasons = set(decision.reasons)
    if raised is not policy and decision.replicas == least and Reason.AT_LEAST_MIN in reasons:
        asked = ((scheduled, Reason.SCHEDULED), (floor.replicas, Reason.SLO_BURN), (tokens, Reason.CAPACITY))
        reasons = {*(reasons - {Reason.AT_LEAST_MIN}), *(why for wants, why in asked if wants == least)}
    if failing:
        reasons.add(Reason.FAILING)
    times = [
        time
        for time in (decision.again_at, snapshot.schedule_changes_at, floor.until)
        if time is not None and time > now
    ]
    return Decision(
        replicas=decision.replicas, reasons=in_order(reasons), memory=_remembering(decision.memory, floor, learned),
        again_at=min(times) if times else None, marginal_gain=decision.marginal_gain, deadline=decision.deadline,
        kept=decision.kept, waits=decision.waits, tiers=decision.tiers,
    )  # fmt: skip


def _whole(decision: Decision, snapshot: Snapshot, now: Instant) -> bool:
    """Whether the policy's own decision needs nothing more: no schedule's word, nothing of before to be forgotten."""
    memory, again_at = decision.memory, decision.again_at
    forgotten = memory.capacity is None and not memory.burn_floor and memory.burn_until is None
    return forgotten and snapshot.schedule_changes_at is None and (again_at is None or again_at > now)


def _evidence(snapshot: Snapshot) -> capacity.Evidence | None:
    """What was served, with how fast the promise is used up."""
    served = snapshot.served
    if served is None or snapshot.burn is None or snapshot.burn.fast is None:
        return served
    known = snapshot.memory.capacity
    if known is not None and known.seen_at is not None and served.ended_at <= known.seen_at:
        return served  # learned already
    return replace(served, spent=snapshot.burn.fast)


def _remembering(memory: Memory, floor: burn.BurnFloor, learned: capacity.Capacity | None) -> Memory:
    """With the floor and what was learned. (Written out: `replace` takes eight times as long, at each decision.)"""
    return Memory(
        panic_until=memory.panic_until, panic_floor=memory.panic_floor, last_busy_at=memory.last_busy_at,
        raised_at=memory.raised_at, lowered_at=memory.lowered_at, patience=memory.patience, floor=memory.floor,
        floor_until=memory.floor_until, floor_open=memory.floor_open, forecast=memory.forecast, kept=memory.kept,
        peer=memory.peer, recommended=memory.recommended, burn_floor=floor.replicas, burn_until=floor.until,
        capacity=learned, starts=memory.starts, seconds=memory.seconds,
    )  # fmt: skip


def _unacted(snapshot: Snapshot, policy: ScalingPolicy, now: Instant, own: Policy | None) -> Decision:
    """The wish stands. In the mode `recommend` the policy goes on as if what it recommends were wished."""
    standing = wished(snapshot)
    if policy.mode is Mode.PAUSED:
        memory = replace(snapshot.memory, recommended=None)
        return Decision(replicas=standing, reasons=(Reason.PAUSED,), memory=memory)
    before = snapshot.memory.recommended
    seen = snapshot if before is None else replace(snapshot, wished=before)
    would = _decided(seen, policy, now, own)
    return replace(
        would,
        replicas=standing,
        reasons=in_order({*would.reasons, Reason.RECOMMENDED}),
        memory=replace(would.memory, recommended=would.replicas),
        marginal_gain=0.0,
        kept=0,
        tiers=None,
    )


def _bounded(decision: Decision, policy: ScalingPolicy) -> Decision:
    if policy.min_replicas <= decision.replicas <= policy.max_replicas:
        return decision
    replicas = max(policy.min_replicas, min(policy.max_replicas, decision.replicas))
    bound = Reason.AT_LEAST_MIN if replicas > decision.replicas else Reason.AT_MOST_MAX
    kept = max(0, decision.kept - max(0, decision.replicas - replicas))
    return replace(decision, replicas=replicas, reasons=in_order({*decision.reasons, bound}), kept=kept)
