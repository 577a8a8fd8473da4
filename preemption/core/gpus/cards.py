"""Cards as the planner's inventory has them, and what one is worth beside another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from events.types.replicas import CLOSES, Card, CardsObserved
from preemption.core.gpus.boards import domains_of, network_of
from preemption.core.gpus.mig import INSTANCE
from preemption.core.gpus.mig_names import compute_part
from preemption.core.gpus.parts import NEVER, kind_of, part_of, usable_bytes
from preemption.core.gpus.shapes import MILLI, CardSpec, Mode, NodeSpec, Task
from preemption.core.gpus.topology import Domain

A100_TERAFLOPS: Final = 312.0

TERAFLOPS: Final = {
    "A100": 312.0, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H800": 989.0, "H200": 989.0, "H20": 148.0,
    "GH200": 989.0, "B200": 2250.0, "GB200": 2500.0, "A30": 165.0, "A10": 125.0, "A40": 150.0, "L4": 121.0,
    "L40S": 362.0, "L40": 181.0, "V100": 125.0, "T4": 65.0, "P100": 21.0,
}  # fmt: skip
"""Dense half-precision TFLOPS by NVIDIA's data sheets. The longest name that a product's words contain counts."""


def units(product: str, own: Mapping[str, float] | None = None) -> float:
    """What a card is worth in A100s (A100 = 1.0), by dense half-precision arithmetic; 1.0 for a kind that is not known.
    `own`: what its owner says, by product; it goes before the data sheets.

    It prices a card's seconds when victims are compared; what fits where is decided on bytes and cores alone.
    """
    words = _words(product)
    said = [name for name in own or () if _contains(words, _words(name))]
    if own and said:
        return own[max(said, key=len)]
    fits = [name for name in TERAFLOPS if _contains(words, name.split())]
    return TERAFLOPS[max(fits, key=len)] / A100_TERAFLOPS if fits else 1.0


def card_units(card: Card, own: Mapping[str, float] | None = None) -> float:
    """What an entry of the inventory is worth in A100s: a card, or a MIG instance its part of one. Of a turn, the whole
    card: who has it holds thousandths of that."""
    return units(card.product, own) * compute_part(card.product, card.profile)


def best_units(cards: Iterable[Card], task: Task, own: Mapping[str, float] | None = None) -> float:
    """What it would have of the best of these is worth to one piece of work, in A100s: whole cards, its part of one, a
    turn, a MIG instance. Where it could be on none, the same of the best card; that is 1.0 where there is none."""
    if not task.gpus:
        return 0.0
    cards = list(cards)
    such = [units(card.product, own) * part for card in cards if (part := _part_for(task, card)) is not None]
    if such:
        return task.gpus * max(such)
    part = compute_part("", task.profile) if task.profile else task.gpus * task.milli / MILLI
    return part * max((units(card.product, own) for card in cards), default=1.0)


def alike_cards(cards: Iterable[Card]) -> tuple[Card, ...]:
    """One card of each kind that is worth something else to somebody: for `best_units` of a large pool."""
    return tuple({(card.product, card.profile, card.turns, usable_bytes(card)): card for card in cards}.values())


def _part_for(task: Task, card: Card) -> float | None:
    """Which part of its card such work takes of an entry of the inventory; None where it cannot be on it."""
    if task.profile or card.profile:
        return compute_part(card.product, card.profile) if task.profile == card.profile else None
    part = part_of(task.milli, task.gpu_bytes, kind_of(card))
    return None if part == NEVER else part / MILLI


def node_spec(seen: CardsObserved) -> NodeSpec:
    """What the cluster adapter saw, as a node of the inventory: cards whole or shared, single turns, or single MIG
    instances. A node with a taint that keeps pods away has nothing left for what does not say that it bears it, and
    nothing that is planned here does."""
    closed = any(taint.effect in CLOSES for taint in seen.taints)
    domains = domains_of(seen.cards) or ((None, None),) * len(seen.cards)
    cards = tuple(_card_spec(card, domain) for card, domain in zip(seen.cards, domains, strict=True))
    products = {card.product for card in seen.cards}
    return NodeSpec(
        name=seen.node, cpu_milli=0 if closed else int(round(seen.cpu * MILLI, 6)),
        memory_bytes=0 if closed else seen.memory_bytes,
        model=products.pop() if len(products) == 1 else "", cards=cards,
        network=network_of(seen.labels),
    )  # fmt: skip


def _card_spec(card: Card, domain: Domain) -> CardSpec:
    if card.profile:
        family = INSTANCE + card.profile
        return CardSpec(id=card.id, mode=Mode.MIG, family=family, usable_bytes=card.memory_bytes)
    return CardSpec(
        id=card.id, mode=Mode.SLICED if card.turns else Mode.SHARED, usable_bytes=usable_bytes(card), turns=card.turns,
        link=domain[0], numa=domain[1],
    )  # fmt: skip


def _words(product: str) -> list[str]:
    return product.replace("-", " ").split()


def _contains(words: list[str], wanted: list[str]) -> bool:
    """Whether the wanted words stand in a row in `words`; a size may hang on the last (``A100 80GB``, ``A100SXM``)."""
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
