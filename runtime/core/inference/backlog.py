"""What a backlog asks of the autoscaler: how many requests must run at once so that it is done in time."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Instant, Seconds
from runtime.core.inference.policy import InferencePolicy


@dataclass(frozen=True, slots=True)
class Backlog:
    """Requests of one model that have no lease. Unknown is None."""

    model: str
    items: int
    oldest_since: Instant | None = None
    earliest_deadline: Instant | None = None
    run_seconds: Seconds | None = None


def concurrency(backlog: Backlog, policy: InferencePolicy, now: Instant) -> float:
    """Requests that must run at once: items x seconds of each / seconds left (Little's law), at most the items.

    Left is half the time to the earliest deadline (the other half is for starting and for errors), `drain_within` at
    most. As long as no run was seen each item counts as one, like a request that is held.
    """
    if not backlog.items:
        return 0.0
    if backlog.run_seconds is None:
        return float(backlog.items)
    left = float(policy.drain_within)
    if backlog.earliest_deadline is not None:
        left = min(left, (backlog.earliest_deadline - now) / 2)
    if left <= backlog.run_seconds:
        return float(backlog.items)
    return max(min(1.0, backlog.items), min(float(backlog.items), backlog.items * backlog.run_seconds / left))
