"""GPUs in use by somebody whom no pod accounts for, and GPUs of pods that have ended: what is not given. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from deploy.kubernetes import slicing
from events.types.gpus import GpusObserved, NodeGpu
from events.types.replicas import Card, CardsObserved

UUIDS: Final = ("GPU-", "MIG-")
"""How the ids of cards begin that are the driver's own."""
_INSTANCE: Final = " MIG "
"""In the product's name of an instance, before its profile."""


@dataclass(frozen=True, slots=True)
class Left:
    """A pod with GPUs that has ended, where it was, and the cards that it was granted."""

    node: str
    pod: str
    """NAMESPACE/NAME."""
    cards: tuple[str, ...]


def without_unaccounted(state: CardsObserved, seen: GpusObserved | None, held: Collection[str]) -> CardsObserved:
    """What a node has for replicas, less the GPUs that must not be given now: those in use by strangers, and of cards
    that are claimed by their UUID the sick ones. What is held stays.

    Where a device plugin counts cards, they have no names in common: there is one fewer for each, and which one the
    plugin gives is its own choice; of a card that it counts several times, as many turns. (It sees sick ones by itself,
    and counts them no more.)
    """
    if seen is None:
        return state
    unaccounted = [one for one in seen.gpus if one.unaccounted]
    barred = {one.id for one in unaccounted} | {one.id for one in seen.gpus if one.sick}
    cards = [card for card in state.cards if card.id in held or card.id not in barred]
    for one in unaccounted:
        spare = [card for card in reversed(cards) if _is_counted(card, one) and card.id not in held]
        for card in spare[: max(1, spare[0].turns) if spare else 0]:
            cards.remove(card)
    return state if len(cards) == len(state.cards) else replace(state, cards=tuple(cards))


def _is_counted(card: Card, gpu: NodeGpu) -> bool:
    """Whether a card is one of those that a plugin counts, of this GPU's kind."""
    if card.turns:
        return not gpu.parent and slicing.resource_of(card.id) is not None
    kind = f"mig-{gpu.product.partition(_INSTANCE)[2]}" if gpu.parent else "gpu"
    return card.id.rpartition("-")[0] == kind and not card.id.startswith(UUIDS)


def what_is_left(left: Left, state: GpusObserved | None, had: Collection[str] | None) -> str:
    """What of a pod that has ended is still on its GPUs, in words; empty: nothing that anybody can tell.

    `had`: the GPUs that it was given; None: nobody knows which. Then it is waited until no GPU of the node is in use by
    somebody whom no pod accounts for.
    """
    if state is None or not state.known:
        return ""
    wanted = set(had or ()) | {card for card in left.cards if card.startswith(UUIDS)}
    known = {one.id: one for one in state.gpus}
    if not known:
        return f"the agent of node {left.node} does not answer"
    if not wanted:
        return next((_in_use(one) for one in state.gpus if one.unaccounted or _may_be_in_use(one)), "")
    for card in sorted(wanted):
        gpu = known.get(card)
        if gpu is None:
            return f"GPU {card} is not seen any more"
        others = [pod for pod in gpu.pods or () if pod != left.pod]
        if others or gpu.empty or _never_tells(gpu):
            continue  # handed on by the kubelet, empty, or one that never tells
        return _in_use(gpu)
    return ""


def _never_tells(gpu: NodeGpu) -> bool:
    """Whether it is one whose memory is the machine's own, so that its driver tells of none."""
    return gpu.empty is None and gpu.memory_bytes is None and not gpu.sick


def _may_be_in_use(gpu: NodeGpu) -> bool:
    """Whether it is not known to be empty, though it told before, and no pod has it."""
    return gpu.empty is None and not gpu.pods and not gpu.split and not _never_tells(gpu)


def _in_use(gpu: NodeGpu) -> str:
    if gpu.empty is None:
        return f"it is not known whether GPU {gpu.id} is empty"
    used = "" if gpu.used_bytes is None else f" with {gpu.used_bytes >> 20} MiB"
    return f"GPU {gpu.id} is still in use{used}"
