"""The settings of a pool of GPUs in plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from events.units import Seconds
from preemption.core.calling import CallPolicy
from preemption.core.lending.policy import LendingPolicy


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How a pool lends its cards. `units`: what cards of a product are worth in A100s, where its owner says so; by the
    product's name as the driver tells it, or a part of it that stands by itself. `calls`: how models that find no room
    call for nodes; None: none does. `cold_start_cost`: what a cold start of any model is worth, in seconds of one GPU:
    the autoscalers go by it; None: each model says."""

    lending: LendingPolicy = field(default_factory=LendingPolicy)
    units: Mapping[str, float] = field(default_factory=dict)
    calls: CallPolicy | None = None
    cold_start_cost: Seconds | None = None

    def worth(self, product: str) -> float:
        """What a card is worth in A100s."""
        from preemption.core.gpus.cards import units  # noqa: PLC0415 - it brings numpy, which not everybody needs

        return units(product, self.units)


DEFAULT = PoolPolicy()
"""Of a pool that nobody declares."""
