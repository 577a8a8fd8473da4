"""What a node has for replicas: its allocatable resources, less what pods of others take. Pure.

Which card a container gets the kubelet's device plugin decides, at its start; the scheduler and we count only. So cards
have names of our own, ``gpu-0`` and on, one for each that is not taken by others, and the ledger's arithmetic is exact
as long as every replica that runs keeps the names it was granted: those are listed first. Where the plugin shares cards
by time-slicing or MPS, their turns are listed (`slicing`). Where no plugin counts cards,
those count that a driver publishes one by one (`devices`), and where HAMi shares cards, those that it lists (`hami`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from math import floor
from typing import Final

from deploy.kubernetes import hami, slicing
from deploy.kubernetes.devices import is_device
from deploy.kubernetes.slicing import SHARED
from deploy.kubernetes.views import NodeView, PodView
from events.types.replicas import Card, CardsObserved

GPU: Final = slicing.GPU
_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb)([.-][a-z][a-z.]*)?")
_RENAMED: Final = ".shared"
"""At the end of a resource whose devices are counted several times."""
MOST: Final = 1 << 14
"""Cards of one resource that are taken for true: 16 cards of a thousand turns each, and some."""


def observed(
    node: NodeView, foreign: Iterable[PodView], held: Collection[str], devices: tuple[Card, ...] | None = ()
) -> CardsObserved:
    """What `node` has for replicas. `foreign`: pods of others that are bound to it; `held`: names of cards that
    replicas on it were granted; `devices`: cards that a driver publishes, None when nobody can tell now. A node that is
    not usable has nothing: what runs there goes on, nothing new comes."""
    claimed = tuple(Card(id=name) for name in sorted(held) if is_device(name)) if devices is None else devices
    foreign = list(foreign)
    if node.shared is not None:
        sold = {card for pod in foreign if not pod.over for card in hami.taken_by(pod.annotations)}
        claimed = tuple(card for card in node.shared if card.id not in sold)
    if not node.usable:
        here = tuple(one for one in claimed if one.id in held)
        return CardsObserved(
            node=node.name, cpu=0.0, memory_bytes=0, cards=_held_cards(node, held) + here, labels=dict(node.labels),
            taints=node.taints,
        )  # fmt: skip
    taken = _taken(foreign)
    free = {name: amount - taken.get(name, 0.0) for name, amount in node.allocatable.items()}
    turns = slicing.turns_in(node.labels, node.allocatable, held)
    cards = _cards(node, "gpu", _left(free, GPU, held, 0), held, "") if turns == 0 else ()
    for resource in (GPU, SHARED) if turns else ():
        cards += _turns(node, resource, (turns or 0, _left(free, resource, held, turns or 0)), held)
    for resource in sorted(free):
        profile = mig_profile(resource)
        if profile and not slicing.instances_are_shared(node.labels, resource):
            cards += _cards(node, f"mig-{profile}", _count(free, resource), held, profile)
    if node.shared is not None or not any(name in (GPU, SHARED) or mig_profile(name) for name in node.allocatable):
        cards = claimed
    return CardsObserved(
        node=node.name, cpu=max(0.0, round(free.get("cpu", 0.0), 3)), memory_bytes=max(0, floor(free.get("memory", 0))),
        cards=cards, labels=dict(node.labels), taints=node.taints,
    )  # fmt: skip


def mig_profile(resource: str) -> str:
    """The MIG profile that an extended resource counts, in our words (``1g.10gb+me``, ``1g.24gb-me``); empty for
    others, and where instances are shared."""
    found = None if resource.endswith(_RENAMED) else _MIG.fullmatch(resource)
    return "" if found is None else found[1] + re.sub(r"^\.", "+", found[2] or "")


def mig_resource(profile: str) -> str:
    """The extended resource that counts a MIG profile (the device plugin's strategy "mixed", which writes a point for
    each plus)."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def _taken(foreign: Iterable[PodView]) -> Mapping[str, float]:
    sums: dict[str, float] = {}
    for pod in foreign:
        if not pod.over:
            for name, amount in pod.requests.items():
                sums[name] = sums.get(name, 0.0) + amount
    return sums


def _count(free: Mapping[str, float], resource: str) -> int:
    return max(0, floor(min(free.get(resource, 0.0), MOST)))


def _left(free: Mapping[str, float], resource: str, held: Collection[str], turns: int) -> int:
    """How many of a resource there are for names as they are now. Pods that were granted others, before the plugin was
    told to share cards otherwise, have one each."""
    others = [name for name in held if slicing.counted_by(name) == resource
              and not (slicing.is_turn(name, resource, turns) if turns else name.startswith("gpu-"))]  # fmt: skip
    return max(0, _count(free, resource) - len(others))


def _cards(node: NodeView, prefix: str, count: int, held: Collection[str], profile: str) -> tuple[Card, ...]:
    """So many cards: first those that are held, then the lowest numbers that are free."""
    names = sorted((name for name in held if name.rpartition("-")[0] == prefix), key=_number)[:count]
    taken = frozenset(names)
    free = (name for index in itertools.count() if (name := f"{prefix}-{index}") not in taken)
    names += itertools.islice(free, count - len(names))
    memory = 0 if profile else node.card_bytes
    return tuple(
        Card(id=name, product=node.product, memory_bytes=memory, profile=profile) for name in sorted(names, key=_number)
    )


def _turns(node: NodeView, resource: str, how: tuple[int, int], held: Collection[str]) -> tuple[Card, ...]:
    """So many turns (the second number) of cards that have so many each (the first)."""
    turns, count = how
    return tuple(
        Card(id=name, product=node.product, memory_bytes=node.card_bytes, turns=turns)
        for name in slicing.names(resource, turns, count, held)
    )  # fmt: skip


def _held_cards(node: NodeView, held: Collection[str]) -> tuple[Card, ...]:
    """The cards of replicas that still run on a node that takes no new ones."""
    gpus = [name for name in held if name.startswith("gpu-")]
    turns = slicing.turns_in(node.labels, node.allocatable) or 0
    shared = [name for name in held if any(slicing.is_turn(name, one, turns) for one in (GPU, SHARED))]
    return _cards(node, "gpu", len(gpus), gpus, "") + tuple(
        Card(id=name, product=node.product, memory_bytes=node.card_bytes, turns=turns) for name in sorted(shared)
    )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
