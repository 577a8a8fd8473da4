"""The settings of a pool of GPUs in plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from events.types.replicas import Card
from events.units import Seconds
from preemption.core.calling import CallPolicy
from preemption.core.gpus.shapes import Task
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

    def worth(self, card: Card) -> float:
        """What a card, or a MIG instance, is worth in A100s."""
        from preemption.core.gpus.cards import card_units  # noqa: PLC0415 - it brings numpy, which not everybody needs

        return card_units(card, self.units)

    def best(self, cards: Iterable[Card], task: Task) -> float:
        """What such work would have of the best of these is worth, in A100s."""
        from preemption.core.gpus.cards import best_units  # noqa: PLC0415 - see `worth`

        return best_units(cards, task, self.units)


DEFAULT = PoolPolicy()
"""Of a pool that nobody declares."""
