"""Cards that HAMi shares: a node's annotation lists them, a pod names one and asks for a part of it. Pure.

HAMi's device plugin counts each card several times (ten, by default), so that the number of ``nvidia.com/gpu`` of such
a node is none of cards. The annotation that its scheduler goes by has the cards themselves: as JSON, and in older
versions as ``UUID,split,MiB,cores,type,numa,healthy:`` for each (docs/develop/protocol.md and pkg/device/devices.go of
Project-HAMi/HAMi).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from deploy.kubernetes.quantities import card_memory
from events.types.replicas import Card

REGISTER: Final = "hami.io/node-nvidia-register"
"""Of a node: its cards."""
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
"""Of a pod, written by HAMi's scheduler: ``UUID,NVIDIA,MiB,cores:`` a card, ``;`` after each container."""
CHOSEN: Final = "nvidia.com/use-gpuuuid"
"""Of a pod: the cards that HAMi's scheduler may take for it."""
PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
"""A share of a card's memory; none asked for, or 100: the card alone."""
MEMORY: Final = "nvidia.com/gpumem"
"""So many MiB of a card's memory instead."""
_SHARED: Final = "hami-"
"""Before the UUID, in the id of such a card."""


def cards_in(annotations: Mapping[str, str]) -> tuple[Card, ...] | None:
    """The healthy cards of a node. None: HAMi does not share its cards."""
    text = annotations.get(REGISTER)
    if text is None:
        return None
    rows = _from_json(text) if text.lstrip().startswith("[") else _from_words(text)
    return tuple(card for card in map(_card, rows) if card is not None)


def _from_json(text: str) -> list[Mapping[str, Any]]:
    try:
        return [one for one in json.loads(text) if isinstance(one, dict)]
    except (ValueError, RecursionError):
        return []


def _from_words(text: str) -> list[Mapping[str, Any]]:
    names = ("id", "count", "devmem", "devcore", "type", "numa", "health")
    rows = (dict(zip(names, part.split(","), strict=False)) for part in text.split(":") if part.count(",") >= 6)
    return [row | {"health": row["health"] == "true"} for row in rows]


def _card(row: Mapping[str, Any]) -> Card | None:
    uuid, memory, numa = row.get("id"), card_memory(str(row.get("devmem", "0"))), str(row.get("numa", "0"))
    if not isinstance(uuid, str) or not uuid or row.get("health") is not True or memory is None:
        return None
    where = int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else None
    return Card(id=_SHARED + uuid, product=str(row.get("type", "")), memory_bytes=memory, numa=where)


def taken_by(annotations: Mapping[str, str]) -> set[str]:
    """The ids of cards of which a pod has a part."""
    parts = (one for container in annotations.get(ALLOCATED, "").split(";") for one in container.split(":"))
    return {_SHARED + part.split(",")[0] for part in parts if "," in part}


def is_shared(card: str) -> bool:
    """Whether a card is one that HAMi shares."""
    return card.startswith(_SHARED)


def choice_of(cards: tuple[str, ...]) -> dict[str, str]:
    """The annotation of a pod that was granted these; none for other cards."""
    if not cards or not is_shared(cards[0]):
        return {}
    return {CHOSEN: ",".join(card.removeprefix(_SHARED) for card in cards)}
