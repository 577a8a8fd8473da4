"""Sentences about what other policies than `relume` go by, where they have more to say than their name."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.core.peers import IdleMemory, KpaMemory, KpaOptions
from autoscaler.core.policy import ScalingPolicy
from autoscaler.words import number, replicas, span, times

Clock = Callable[[float], str]


def knative_panics(policy: ScalingPolicy, memory: KpaMemory, ready: int, clock: Clock) -> str:
    """Of `kpa`: its panic, which looks at what is ready alone and ends by time alone."""
    options = policy.options if isinstance(policy.options, KpaOptions) else KpaOptions()
    end = "" if memory.panic_since is None else f" before {clock(memory.panic_since + policy.stable_window)}"
    most, window = span(policy.panic_window), span(policy.stable_window)
    return (
        f"Over {most} at least {number(options.panic_threshold)} times what was ready ({replicas(ready)} now) was "
        f"needed in the last {window}, or {policy.name} had just begun with more than one: nothing is taken away{end}."
    )


def by_idle_times(memory: IdleMemory, wished: int, clock: Clock) -> str:
    """Of `hybrid-histogram`: why something is held that nothing needs now."""
    if memory.most >= wished or memory.idle is None:
        return (
            f"{_needed(memory.most)} in the minute that ends at {clock(memory.ends_at)}, and what was stays to its end."
        )
    seen = sum(count for _, count in memory.counts) + memory.beyond_count
    known = f"it was seen to idle {times(seen)}, and by how long that was" if seen else "it was never seen to idle, so"
    idle = "in the minute before" if not memory.idle else f"{span(60.0 * memory.idle)} before this minute"
    return f"{_needed(memory.needed)} when it was last busy, {idle}; {known} it may be asked again now."


def _needed(count: int) -> str:
    return f"{replicas(count)} {'was' if count == 1 else 'were'} needed"
