"""Room that an enrolled object's pods have already, before anybody wants a replica of its model: for that model alone.

Such a pod takes its node's GPUs as any other does. Were it counted among others' there would be no room for the replica
that it is to be. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from deploy.kubernetes import slicing
from deploy.kubernetes.nodes import GPU, mig_profile
from deploy.kubernetes.views import NodeView, PodView
from events.types.replicas import CardsObserved, OwnRoom
from events.types.shared import Resources

_WITHOUT: Final = frozenset(("cpu", "memory", "ephemeral-storage", "pods"))
"""What pods ask for beside devices."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A pod of a model's enrolled object that is no replica. `awaited`: a replica that was granted is about to get it,
    so it is no room for another one."""

    model: str
    pod: PodView
    awaited: bool = False


def is_room(node: NodeView, pod: PodView) -> bool:
    """Whether what a pod has of its node can be told as cards: none, whole ones, or one MIG instance. Others stay
    others': turns, HAMi's parts, cards that are claimed one by one."""
    devices = {name: count for name, count in pod.requests.items() if name not in _WITHOUT and count}
    if not devices:
        return True
    if len(devices) > 1 or node.shared is not None or not node.usable:
        return False
    ((name, count),) = devices.items()
    if name == GPU:
        return slicing.turns_in(node.labels, node.allocatable) == 0
    return bool(mig_profile(name)) and count == 1 and not slicing.instances_are_shared(node.labels, name)


def with_rooms(state: CardsObserved, idle: Iterable[Idle], held: Collection[str]) -> CardsObserved:
    """What a node has, with what of it is for one model alone: of the cards that no replica was granted the last ones,
    so that who comes meanwhile, and is given the first free ones, finds others."""
    free = [card for card in state.cards if card.id not in held]
    rooms = []
    for one in sorted(idle, key=lambda one: (one.pod.created_at, one.pod.name)):
        resources = _resources(one.pod)
        alike = [card.id for card in free if card.profile == resources.mig_profile]
        count = resources.gpus or int(bool(resources.mig_profile))
        if one.awaited or len(alike) < count:
            continue
        cards = tuple(alike[len(alike) - count :])
        free = [card for card in free if card.id not in cards]
        rooms.append(OwnRoom(
            model=one.model, pod=one.pod.name, gpus=cards, resources=resources, ordinal=one.pod.ordinal or 0,
            since=one.pod.created_at,
        ))  # fmt: skip
    return replace(state, rooms=tuple(rooms)) if rooms else state


def _resources(pod: PodView) -> Resources:
    profiles = [profile for name, count in pod.requests.items() if count and (profile := mig_profile(name))]
    return Resources(
        gpus=int(pod.requests.get(GPU, 0)), mig_profile=profiles[0] if profiles else "",
        cpu=round(pod.requests.get("cpu", 0.0), 3), memory_bytes=ceil(pod.requests.get("memory", 0.0)),
    )  # fmt: skip
