"""`hpa` and `keda`: Kubernetes' Horizontal Pod Autoscaler, and KEDA, which wakes and puts to sleep around it.

HPA on a metric of the type AverageValue: what is needed is the number divided by the target, unless that is within the
tolerance of what there is; fewer only down to the most that was wanted in the stabilisation window; more only by the
default policies of `behavior`. Sources: Kubernetes' documentation of the HorizontalPodAutoscaler algorithm and its
defaults; KEDA 8b4f083c, `pkg/scaling/executor/scale_scaledobjects.go`. The number is the concurrency at the look, a
point sample as KEDA's HTTP add-on gives it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autoscaler.core.model import Decision, Reason, Snapshot, in_order
from autoscaler.core.peers import HpaMemory, HpaOptions, KedaOptions, Sample, keep_most
from autoscaler.core.policies.unknown import unknown, wished
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant

WANTED_MOST = 64
"""Recommendations kept: one each sync of 15 s fills the stabilisation window with twenty."""

EPSILON = 1e-9


def step(current: int, need: float, options: HpaOptions, memory: HpaMemory, now: Instant) -> tuple[int, HpaMemory]:
    """One look of the HPA: `need` is the metric divided by the target, not yet rounded. From zero it does nothing."""
    if not current:
        return 0, replace(memory, synced_at=now, wanted=(), raised=())
    wanted = current if abs(need / current - 1.0) <= options.tolerance + EPSILON else ceil(need - EPSILON)
    wanted = max(1, wanted)
    kept = keep_most(memory.wanted, Sample(at=now, amount=float(wanted)), now - options.stabilisation, WANTED_MOST)
    stable = wanted if wanted >= current else min(current, int(kept[0].amount))
    raised = tuple(one for one in memory.raised if one.at > now - options.up_period)
    began = current - int(sum(one.amount for one in raised))
    most = max(began + options.up_pods, ceil(began * (1.0 + options.up_factor) - EPSILON))
    replicas = max(min(stable, max(most, current)), 1)
    if replicas > current:
        raised = (*raised, Sample(at=now, amount=float(replicas - current)))
    return replicas, replace(memory, synced_at=now, wanted=kept, raised=raised)


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """`hpa`: never fewer than one."""
    options = policy.options if isinstance(policy.options, HpaOptions) else HpaOptions()
    memory = _remembered(snapshot)
    if wished(snapshot) < 1:
        return _decision(snapshot, max(1, policy.min_replicas), {Reason.AT_LEAST_MIN}, memory, now + options.sync)
    return _looked(snapshot, policy, options, memory, now)


def decide_keda(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """`keda`: activity between zero and one, the HPA above."""
    options = policy.options if isinstance(policy.options, KedaOptions) else KedaOptions()
    memory, before, demand = _remembered(snapshot), wished(snapshot), snapshot.demand
    level = demand.running + demand.waiting
    active = level > options.activation or demand.signal > 0
    if memory.polled_at is None or not memory.polled_at <= now < memory.polled_at + options.polling:
        memory = replace(memory, polled_at=now, active_at=now if active else memory.active_at)
        if not before:
            if not active:
                return _decision(snapshot, policy.min_replicas, _resting(policy), memory, None)
            memory = replace(memory, synced_at=None, wanted=(), raised=())
            again = now + options.hpa.sync
            return _decision(snapshot, max(1, policy.min_replicas), {Reason.ACTIVATION}, memory, again)
        cooled = memory.active_at is None or now >= memory.active_at + options.cooldown
        if not active and cooled and unknown(snapshot) is None:
            return _decision(snapshot, policy.min_replicas, _resting(policy), HpaMemory(polled_at=now), None)
    polled_at = now if memory.polled_at is None else memory.polled_at
    if not before:
        return _decision(snapshot, 0, {Reason.IDLE}, memory, polled_at + options.polling if active else None)
    looked = _looked(snapshot, policy, options.hpa, memory, now)
    cools_at = None if active or memory.active_at is None else memory.active_at + options.cooldown
    if cools_at is None or looked.again_at is None or not now < cools_at < looked.again_at:
        return looked
    return replace(looked, again_at=max(cools_at, polled_at + options.polling))


def _looked(
    snapshot: Snapshot, policy: ScalingPolicy, options: HpaOptions, memory: HpaMemory, now: Instant
) -> Decision:
    """The HPA's look, if it is time for one."""
    before, demand = max(1, wished(snapshot)), snapshot.demand
    if memory.synced_at is not None and memory.synced_at <= now < memory.synced_at + options.sync:
        return _decision(snapshot, before, {Reason.STEADY}, memory, memory.synced_at + options.sync)
    again = now + options.sync
    need, not_known = max((demand.running + demand.waiting) / policy.target, demand.signal), unknown(snapshot)
    if not_known is not None and need <= before:
        return _decision(snapshot, before, {not_known}, replace(memory, synced_at=now), again)
    replicas, memory = step(before, need, options, memory, now)
    why = Reason.STEADY
    if replicas != before:
        why = Reason.LOAD if replicas > before else Reason.DESCENT
    return _decision(snapshot, replicas, {why}, memory, again)


def _resting(policy: ScalingPolicy) -> set[Reason]:
    return {Reason.IDLE, Reason.AT_LEAST_MIN} if policy.min_replicas else {Reason.IDLE}


def _remembered(snapshot: Snapshot) -> HpaMemory:
    return snapshot.memory.peer if isinstance(snapshot.memory.peer, HpaMemory) else HpaMemory()


def _decision(
    snapshot: Snapshot, replicas: int, reasons: set[Reason], memory: HpaMemory, again: float | None
) -> Decision:
    return Decision(
        replicas=replicas,
        reasons=in_order(reasons),
        memory=replace(snapshot.memory, peer=memory, last_busy_at=snapshot.demand.last_active_at),
        again_at=again,
        deadline=snapshot.demand.earliest_deadline if snapshot.demand.waiting else None,
    )
