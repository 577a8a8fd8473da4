"""`hybrid-histogram`: Shahrad et al., ATC 2020, live: what `autoscaler.core.grains.histogram` holds, and at least what
is needed now. Its minutes begin when a model is first looked at."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autoscaler.core.forecast.hold import GRAIN
from autoscaler.core.grains.histogram import BINS, HybridHistogram, IdleTimes, load_window
from autoscaler.core.model import Decision, Reason, Snapshot, in_order
from autoscaler.core.peers import IdleMemory
from autoscaler.core.policies.unknown import unknown, wished
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant

MISSED_MOST = 2 * BINS
"""Minutes that nobody looked at and that are counted one by one."""

EPSILON = 1e-6
_HISTOGRAM = HybridHistogram()


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """What was needed when it was last busy, in the window in which it comes back; and what is needed now."""
    demand = snapshot.demand
    need = ceil(max((demand.running + demand.waiting) / policy.target, demand.signal) - EPSILON)
    was = snapshot.memory.peer if isinstance(snapshot.memory.peer, IdleMemory) else None
    if was is None or was.ends_at > now + GRAIN:
        was = IdleMemory(ends_at=now + GRAIN)
    memory = _passed(was, now)
    memory = replace(memory, most=max(memory.most, need))
    held = max(need, memory.most, _HISTOGRAM.hold(_read(memory)))
    before, not_known = wished(snapshot), unknown(snapshot)
    if not_known is not None and held < before:
        held, why = before, not_known
    elif held == before:
        why = Reason.STEADY if need == held else Reason.FORECAST
    else:
        why = Reason.DESCENT if held else Reason.IDLE
        if held > before:
            why = Reason.LOAD if need == held else Reason.FORECAST
    return Decision(
        replicas=held,
        reasons=in_order({why}),
        memory=replace(snapshot.memory, peer=memory, last_busy_at=demand.last_active_at),
        again_at=memory.ends_at if memory.idle is not None or memory.most or held else None,
        deadline=demand.earliest_deadline if demand.waiting else None,
    )


def _passed(was: IdleMemory, now: Instant) -> IdleMemory:
    """Minutes that have ended are counted."""
    state, ends_at, most = _read(was), was.ends_at, was.most
    if now >= ends_at + MISSED_MOST * GRAIN:
        state, ends_at = IdleTimes(counts=state.counts, beyond=state.beyond, beyond_count=state.beyond_count), now
        most = 0
    while now >= ends_at:
        state, most, ends_at = _HISTOGRAM.after(state, most), 0, ends_at + GRAIN
    return IdleMemory(
        ends_at=ends_at, most=most, idle=state.idle, needed=state.needed,
        counts=tuple((at, count) for at, count in enumerate(state.counts) if count),
        beyond=state.beyond, beyond_count=state.beyond_count,
    )  # fmt: skip


def _read(memory: IdleMemory) -> IdleTimes:
    counts = [0] * BINS if memory.counts else []
    for at, count in memory.counts:
        counts[at] = count
    every = tuple(counts)
    known = memory.counts or memory.beyond_count
    window = load_window(every, memory.beyond, memory.beyond_count) if known else (0.0, float(BINS))
    return IdleTimes(memory.idle, memory.needed, every, memory.beyond, memory.beyond_count, window)
