"""`keepalive` and `concurrency`: a fixed keep-alive, and KubeAI's moving average."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

from autoscaler.core.model import Decision, Reason, Snapshot, in_order
from autoscaler.core.peers import ConcurrencyOptions, KeptMemory, PeerMemory, Sample, SamplesMemory, keep_most
from autoscaler.core.policies.unknown import unknown, wished
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant

KEPT_MOST = 32
"""Steps of what was needed that `keepalive` keeps."""

LOOK_AGAIN = 5.0
EPSILON = 1e-6


def keepalive(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """The most that was needed at once in the last `keepAlive`: what a fixed keep-alive holds."""
    demand = snapshot.demand
    known = snapshot.memory.peer.kept if isinstance(snapshot.memory.peer, KeptMemory) else None
    level = demand.running + demand.waiting
    need = float(ceil(max(level / policy.target, demand.signal) - EPSILON))
    not_known = unknown(snapshot)
    if not_known is not None or known is None:
        need = max(need, float(wished(snapshot)))  # what is not known holds what there is
    kept = keep_most(known or (), Sample(at=now, amount=need), now - policy.keep_alive, KEPT_MOST)
    replicas, before = int(kept[0].amount), wished(snapshot)
    why = Reason.KEEP_ALIVE if replicas > need else not_known or Reason.STEADY
    if replicas != before:
        why = Reason.LOAD if replicas > before else Reason.DESCENT if replicas else Reason.IDLE
    # Exactly at its end a step counts no more; a busy model is looked at again since its need goes on.
    ends = kept[0].at + policy.keep_alive if replicas > need else None
    again = now + LOOK_AGAIN if need and (ends is None or ends > now + LOOK_AGAIN) else ends
    return _decision(snapshot, replicas, why, KeptMemory(kept=kept), again)


def concurrency(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """The mean of active requests over ten minutes, rounded up; fewer after three votes; one at once from zero."""
    options = policy.options if isinstance(policy.options, ConcurrencyOptions) else ConcurrencyOptions()
    demand, before = snapshot.demand, wished(snapshot)
    level = demand.running + demand.waiting
    memory = snapshot.memory.peer if isinstance(snapshot.memory.peer, SamplesMemory) else None
    if memory is None or memory.sampled_at > now:
        memory = SamplesMemory(sampled_at=now)
    not_known = unknown(snapshot)
    if not_known is not None:  # a peer that does not answer: the whole tick is left out
        return _decision(snapshot, max(before, int(level > 0)), not_known, memory, now + options.interval)
    passed = floor((now - memory.sampled_at) / options.interval + EPSILON)
    kept = max(1, round(options.window / options.interval))
    votes = memory.votes
    if passed:
        samples = (*memory.samples, *[float(level)] * min(passed, kept))[-kept:]
        mean = sum(samples) / kept
        needed = ceil(max(mean / policy.target, demand.signal) - EPSILON)
        memory = SamplesMemory(sampled_at=memory.sampled_at + passed * options.interval, samples=samples, votes=votes)
        return _voted(snapshot, policy, options, memory, needed)
    replicas = max(before, int(level > 0))
    why = Reason.ACTIVATION if replicas > before else Reason.STEADY
    return _decision(snapshot, replicas, why, memory, memory.sampled_at + options.interval)


def _voted(
    snapshot: Snapshot, policy: ScalingPolicy, options: ConcurrencyOptions, memory: SamplesMemory, needed: int
) -> Decision:
    """A tick: up at once, down after enough votes in a row."""
    before, level = wished(snapshot), snapshot.demand.running + snapshot.demand.waiting
    again: float | None = memory.sampled_at + options.interval
    needed = max(needed, policy.min_replicas, int(level > 0))
    if needed >= before:
        why = Reason.LOAD if needed > before else Reason.STEADY
        if not needed and not any(memory.samples):
            again = None
        return _decision(snapshot, needed, why, replace(memory, votes=0), again)
    votes = memory.votes + 1
    if votes < ceil(options.delay / options.interval - EPSILON):
        return _decision(snapshot, before, Reason.STEADY, replace(memory, votes=votes), again)
    why = Reason.DESCENT if needed else Reason.IDLE
    return _decision(snapshot, needed, why, replace(memory, votes=0), again)


def _decision(snapshot: Snapshot, replicas: int, why: Reason, memory: PeerMemory, again: float | None) -> Decision:
    return Decision(
        replicas=replicas,
        reasons=in_order({why}),
        memory=replace(snapshot.memory, peer=memory, last_busy_at=snapshot.demand.last_active_at),
        again_at=again,
        deadline=snapshot.demand.earliest_deadline if snapshot.demand.waiting else None,
    )
