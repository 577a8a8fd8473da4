"""`kpa`: Knative's Pod Autoscaler, exactly, as far as it can be without its pods and routes.

Read from knative/serving 98e5ef90, `pkg/autoscaler/scaling/autoscaler.go` (`scale`) and
`pkg/reconciler/autoscaling/kpa/scaler.go` (`_to_zero`). What of Knative is not here is in docs/how-to/scaling.md.

It decides each two seconds, and at once when nothing is wished and somebody asks (Knative's `Poke`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor

from autoscaler.core.model import Decision, Reason, Snapshot, in_order
from autoscaler.core.peers import KpaMemory, KpaOptions, Sample, keep_most
from autoscaler.core.policies.unknown import holding, unknown, wished
from autoscaler.core.policy import ScalingPolicy
from events.units import Instant, Seconds

TICK = Seconds(2.0)
"""Knative's `tickInterval`: its rates are by tick."""

EPSILON = 1e-6
"""Averages are rounded to six digits, as Knative does."""

DELAYED_MOST = 64
"""Steps that a delay window keeps; Knative has a slot each two seconds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one decision of Knative is made of. `stable`, `panic`: concurrency, averaged over the two windows."""

    stable: float
    panic: float
    ready: int
    reachable: bool = True


@dataclass(frozen=True, slots=True)
class Scaled:
    """What it says: replicas, the burst capacity that is left (EBC), whether it is in panic, what to remember."""

    replicas: int
    burst_left: float
    panicking: bool
    memory: KpaMemory


@dataclass(frozen=True, slots=True)
class Numbers:
    """What it is set to: the target of one replica (`total`, before the utilisation), windows and options."""

    total: float
    stable_window: Seconds
    options: KpaOptions


def scale(seen: Seen, numbers: Numbers, memory: KpaMemory, now: Instant) -> Scaled:
    """Knative's `Scale`."""
    options, ready = numbers.options, max(1, seen.ready)
    target = max(0.01, numbers.total * options.utilisation)
    most = ceil(options.up_rate * ready - EPSILON)
    least = floor(ready / options.down_rate + EPSILON) if seen.reachable else 0
    raw_stable, raw_panic = _up(seen.stable / target), _up(seen.panic / target)
    stable = max(least, min(raw_stable, most))
    panic = max(least, min(raw_panic, most))
    if options.activation_scale > 1:
        stable = max(stable, options.activation_scale) if raw_stable > 0 else stable
        panic = max(panic, options.activation_scale) if raw_panic > 0 else panic
    since, floor_ = memory.panic_since, memory.panic_most
    if raw_panic / ready >= options.panic_threshold:
        since = now
    elif since is not None and now > since + numbers.stable_window:
        since, floor_ = None, 0
    want = stable
    if since is not None:
        want = floor_ = max(floor_, stable, panic)
    delayed = memory.delayed
    if options.delay > 0 and seen.reachable:
        delayed = keep_most(delayed, Sample(at=now, amount=float(want)), now - options.delay, DELAYED_MOST)
        want = int(delayed[0].amount)
    left = replace(memory, decided_at=now, panic_since=since, panic_most=floor_, delayed=delayed)
    return Scaled(want, _burst_left(seen, numbers), since is not None, left)


def fresh(ready: int, now: Instant) -> KpaMemory:
    """Of an autoscaler that has just begun: with more than one ready it begins in panic, so that it takes none away."""
    if ready > 1:
        return KpaMemory(decided_at=now, panic_since=now, panic_most=ready)
    return KpaMemory(decided_at=now)


def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
    """How many replicas Knative would ask for."""
    options = policy.options if isinstance(policy.options, KpaOptions) else KpaOptions()
    known = snapshot.memory.peer if isinstance(snapshot.memory.peer, KpaMemory) else None
    demand, ready = snapshot.demand, snapshot.replicas.ready
    before = wished(snapshot)
    level = demand.running + demand.waiting
    poked = not before and level > 0
    if known is not None and known.decided_at <= now < known.decided_at + TICK and not poked:
        return _decision(snapshot, before, {Reason.STEADY}, known, known.decided_at + TICK)
    memory = _began(known or fresh(ready, now), snapshot, policy, now)
    averages = _averages(snapshot, policy, memory, now)
    if averages is None:
        why = unknown(snapshot) or Reason.DEMAND_UNKNOWN
        return _decision(snapshot, max(before, int(level > 0)), {why}, replace(memory, decided_at=now), now + TICK)
    numbers = Numbers(policy.target, policy.stable_window, options)
    scaled = scale(Seen(*averages, ready), numbers, memory, now)
    want = max(scaled.replicas, ceil(demand.signal - EPSILON))
    memory = _pathed(scaled, now)
    want, memory, zeroing = _to_zero(want, memory, policy, now)
    quiet = not want and not level
    again = None if quiet and not demand.stale_signals else now + TICK
    reasons = _reasons(scaled, want, before, demand.signal)
    return holding(snapshot, _decision(snapshot, want, {zeroing} if zeroing else reasons, memory, again))


def _averages(snapshot: Snapshot, policy: ScalingPolicy, memory: KpaMemory, now: Instant) -> tuple[float, float] | None:
    """Both averages as Knative's buckets give them: divided by the seconds since demand began, not by a whole window.

    None: not known. While the past has not been read back what is known began just now, as in an autoscaler of Knative
    that has just been started; it takes nothing away (see `fresh`).
    """
    demand = snapshot.demand
    if demand.silent or demand.stable is None or demand.panic is None or not snapshot.history_read:
        return None
    if memory.began_at is None:
        return demand.stable, demand.panic
    seconds = floor(max(0.0, now - memory.began_at)) + 1.0
    first = float(demand.running + demand.waiting) if seconds <= 1.0 else 0.0
    stable = demand.stable * policy.stable_window / min(seconds, policy.stable_window)
    panic = demand.panic * policy.panic_window / min(seconds, policy.panic_window)
    return max(stable, min(1.0, first)), max(panic, min(1.0, first))


def _began(memory: KpaMemory, snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> KpaMemory:
    """Buckets begin with the first demand, and anew after a stable window without any."""
    demand = snapshot.demand
    level = demand.running + demand.waiting
    if not level and (demand.stable or 0.0) <= EPSILON:
        return replace(memory, began_at=None)
    if memory.began_at is not None:
        return memory
    began = now if demand.stable is not None and demand.stable <= EPSILON else now - policy.stable_window
    return replace(memory, began_at=began)


def _burst_left(seen: Seen, numbers: Numbers) -> float:
    burst = numbers.options.burst
    if burst == 0:
        return 0.0
    return -1.0 if burst < 0 else floor(seen.ready * numbers.total - burst - seen.panic)


def _pathed(scaled: Scaled, now: Instant) -> KpaMemory:
    memory = scaled.memory
    if scaled.burst_left >= 0 and scaled.replicas:
        return replace(memory, path_since=None)
    return memory if memory.path_since is not None else replace(memory, path_since=now)


def _to_zero(want: int, memory: KpaMemory, policy: ScalingPolicy, now: Instant) -> tuple[int, KpaMemory, Reason | None]:
    """The last replica goes once it was active for a stable window, idle for the grace (or the hold queue has been in
    the path as long), and for the retention."""
    if want:
        active = memory.active_since if memory.active_since is not None else now
        return want, replace(memory, active_since=active, idle_since=None), None
    if memory.active_since is None:
        return 0, memory, None
    if now < memory.active_since + policy.stable_window:
        return 1, memory, Reason.KEEP_ALIVE
    options = policy.options if isinstance(policy.options, KpaOptions) else KpaOptions()
    idle = memory.idle_since if memory.idle_since is not None else now
    memory = replace(memory, idle_since=idle)
    routed = memory.path_since is not None and now >= memory.path_since + options.grace
    waits = options.retention if routed else max(options.grace, options.retention)
    if now < idle + waits:
        return 1, memory, Reason.KEEP_ALIVE
    return 0, replace(memory, active_since=None, idle_since=None), Reason.IDLE


def _reasons(scaled: Scaled, want: int, before: int, signal: float) -> set[Reason]:
    if want == before:
        return {Reason.PANIC} if scaled.panicking else {Reason.STEADY}
    if want < before:
        return {Reason.DESCENT} if want else {Reason.IDLE}
    if signal and want > scaled.replicas:
        return {Reason.SIGNAL}
    return {Reason.LOAD, Reason.PANIC} if scaled.panicking else {Reason.LOAD}


def _decision(
    snapshot: Snapshot, replicas: int, reasons: set[Reason], memory: KpaMemory, again: float | None
) -> Decision:
    busy = snapshot.demand.last_active_at
    return Decision(
        replicas=replicas,
        reasons=in_order(reasons),
        memory=replace(snapshot.memory, peer=memory, last_busy_at=busy),
        again_at=again,
        deadline=snapshot.demand.earliest_deadline if snapshot.demand.waiting else None,
    )


def _up(amount: float) -> int:
    return ceil(round(amount, 6))
