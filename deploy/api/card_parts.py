"""How much of a GPU an entry of the inventory is, and how much of it somebody has, for people: parts add up to GPUs."""

from __future__ import annotations

from events.types.replicas import Card
from events.types.shared import Resources
from preemption.core.gpus.mig_names import compute_part
from preemption.core.gpus.parts import kind_of
from preemption.core.inventory import MILLI, need_of


def part_of_gpu(card: Card) -> float:
    """The part of a GPU that an entry of the inventory is: a turn, a MIG instance by its compute, or all of it."""
    return compute_part(card.product, card.profile) / max(1, card.turns)


def share_of_gpu(card: Card, resources: Resources) -> float:
    """The part of its GPU that one has who holds an entry of the inventory with these resources."""
    if card.turns or card.profile:
        return round(part_of_gpu(card), 3)
    need, kind = need_of(resources), kind_of(card)
    return min(need.part(kind), kind.size) / MILLI if need.shares else 1.0
