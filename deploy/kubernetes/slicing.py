"""Cards that NVIDIA's device plugin shares by time-slicing or MPS: it counts each several times. Pure.

The labels are those of GPU feature discovery, which reads the plugin's configuration (NVIDIA/k8s-device-plugin, "Shared
Access to GPUs" and docs/gpu-feature-discovery): how often each card is counted, by which strategy, and how many cards
there are. A resource that is renamed ends with ``.shared``, else the product ends with ``-SHARED``. Which card a turn
is of the plugin decides, so turns have names of our own. One turn is asked for at a time: more give no more of the
card, and may be refused (``failRequestsGreaterThanOne``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from preemption.core.gpus.parts import TURN

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
"""What `renameByDefault` makes of it."""
STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
"""``none``, ``time-slicing`` or ``mps``."""
REPLICAS: Final = "nvidia.com/gpu.replicas"
"""How often each card is counted: 1 where nothing is shared, 0 where sharing does not apply."""
COUNT: Final = "nvidia.com/gpu.count"
"""How many cards there are."""
MOST: Final = 1000
"""Turns of a card: a thousandth is the least that the ledger knows."""
_SUFFIX: Final = "-SHARED"
_PREFIXES: Final = {GPU: "turn", SHARED: "shared"}
_NAME: Final = re.compile(rf"(turn|shared)-([0-9]+){TURN}([0-9]+)")


def product_of(labels: Mapping[str, str]) -> str:
    """The product, without what the plugin adds to it."""
    return str(labels.get("nvidia.com/gpu.product", "")).removesuffix(_SUFFIX)


def turns_in(labels: Mapping[str, str], allocatable: Mapping[str, float], held: Collection[str] = ()) -> int | None:
    """Into how many turns each card of a node is shared; 0: its cards are whole. None: they are shared, and nothing
    tells into how many. `held`: names that replicas were granted: where some are turns, and the labels are gone, the
    cards are shared still."""
    replicas = _number(labels.get(REPLICAS, ""))
    renamed = allocatable.get(SHARED, 0) > 0
    if replicas > 1:
        return min(replicas, MOST)
    told = labels.get(STRATEGY, "none") not in ("none", "") or renamed
    told = told or (REPLICAS not in labels and any(resource_of(name) for name in held))
    if not (told or str(labels.get("nvidia.com/gpu.product", "")).endswith(_SUFFIX)):
        return 0
    cards, turns = _number(labels.get(COUNT, "")), int(allocatable.get(SHARED if renamed else GPU, 0))
    return min(turns // cards, MOST) if cards and turns > cards and turns % cards == 0 else None


def instances_are_shared(labels: Mapping[str, str], resource: str) -> bool:
    """Whether a MIG profile's resource counts each instance several times."""
    return _number(labels.get(f"{resource}.replicas", "")) > 1


def names(resource: str, turns: int, count: int, held: Collection[str]) -> list[str]:
    """Names for so many turns: first those that are held, then free ones, a turn of each card before the second of
    any."""
    cards = -(-count // turns)
    order = [f"{_PREFIXES[resource]}-{card}{TURN}{turn}" for turn in range(turns) for card in range(cards)]
    mine = sorted((name for name in held if is_turn(name, resource, turns)), key=_place)[:count]
    known = frozenset(mine)
    free = [name for name in order if name not in known]
    return sorted([*mine, *free[: count - len(mine)]], key=_place)


def is_turn(name: str, resource: str, turns: int) -> bool:
    """Whether a card is named as a turn of this resource."""
    found = _NAME.fullmatch(name)
    return found is not None and found[1] == _PREFIXES[resource] and int(found[3]) < turns


def resource_of(card: str) -> str | None:
    """The resource of which a pod that was granted this card asks for one; None: it is no turn."""
    found = _NAME.fullmatch(card)
    return None if found is None else next(key for key, prefix in _PREFIXES.items() if prefix == found[1])


def counted_by(card: str) -> str | None:
    """The resource of which a pod that was granted this card has one; None: it is no counted card."""
    return GPU if re.fullmatch(r"gpu-[0-9]+", card) else resource_of(card)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _place(name: str) -> tuple[int, int]:
    found = _NAME.fullmatch(name)
    assert found is not None
    return int(found[3]), int(found[2])
