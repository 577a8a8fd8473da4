"""The autoscaler's slice of a model's policy: plain numbers, resolved from the spec once."""

from __future__ import annotations

from events.kinds import value
from events.units import Seconds


@value
class ScalingPolicy:
    """How a model's replicas follow its demand. `target`: wanted concurrency a replica; `slots`: the most it bears."""

    name: str
    min_replicas: int
    max_replicas: int
    target: float
    slots: int
    keep_alive: Seconds
    stable_window: Seconds
    panic_window: Seconds
    priority: int
