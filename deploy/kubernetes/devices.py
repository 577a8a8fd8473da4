"""GPUs that a driver offers by Dynamic Resource Allocation: which a node has, who has which, and how a pod claims its
own. Pure.

A device plugin counts cards and chooses; a driver of this kind publishes each card (ResourceSlice), and a pod claims
cards by a ResourceClaim. Cards so have their own ids here, their UUIDs, and a claim names them: what the ledger granted
is what the pod gets. Whole cards only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.kubernetes.quantities import read_quantity
from deploy.kubernetes.resources import Json, Resource
from events.types.replicas import Card

GROUP: Final = "resource.k8s.io"
VERSION: Final = "v1"
"""Served since Kubernetes 1.34."""
SLICES: Final = Resource(GROUP, VERSION, "resourceslices", "ResourceSlice", namespaced=False)
CLAIMS: Final = Resource(GROUP, VERSION, "resourceclaims", "ResourceClaim")
DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's driver for DRA, the DeviceClass that its chart installs, and the domain of its attributes."""
CLAIM: Final = "gpus"
"""The name of the claim within a pod."""
_REAL: Final = "GPU-"
"""How the UUID of a whole card begins."""
_REPELS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Device:
    """One card, as its driver publishes it. `pool` and `name` are how claims name it; `healthy`: its driver keeps
    nobody away from it by a taint."""

    node: str
    pool: str
    generation: int
    name: str
    uuid: str
    product: str
    memory_bytes: int
    healthy: bool


Place = tuple[str, str]
"""A device's pool and name."""


def devices_in(found: Json) -> tuple[Device, ...]:
    """The whole cards in a ResourceSlice of one node; none in those of other drivers."""
    spec = found["spec"]
    if spec["driver"] != DRIVER or not spec.get("nodeName"):
        return ()
    pool = spec["pool"]
    made = (
        _device(spec["nodeName"], str(pool["name"]), int(pool["generation"]), one) for one in spec.get("devices", ())
    )
    return tuple(one for one in made if one is not None)


def _device(node: str, pool: str, generation: int, found: Json) -> Device | None:
    attributes: Mapping[str, Json] = found.get("attributes", {})
    uuid = _text(attributes, "uuid")
    if _text(attributes, "type") != "gpu" or not uuid.startswith(_REAL):
        return None
    capacity = found.get("capacity", {})
    memory = (capacity.get("memory") or capacity.get(f"{DRIVER}/memory") or {}).get("value", 0)
    healthy = not any(taint.get("effect") in _REPELS for taint in found.get("taints", ()))
    return Device(
        node, pool, generation, str(found["name"]), uuid, _text(attributes, "productName"),
        int(read_quantity(memory)), healthy,
    )  # fmt: skip


def _text(attributes: Mapping[str, Json], name: str) -> str:
    """An attribute, with its domain or without; empty when it is not there."""
    said = attributes.get(name) or attributes.get(f"{DRIVER}/{name}") or {}
    return str(said.get("string", ""))


def newest(devices: Iterable[Device]) -> list[Device]:
    """Of each pool those of its newest generation: slices of older ones are going away."""
    found = list(devices)
    newest_of: dict[str, int] = {}
    for one in found:
        newest_of[one.pool] = max(one.generation, newest_of.get(one.pool, 0))
    return sorted((one for one in found if one.generation == newest_of[one.pool]), key=lambda one: (one.pool, one.name))


def taken_by(claim: Json) -> set[Place]:
    """The devices that a claim has. To look at one with an administrator's access takes nothing."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return {
        (str(one["pool"]), str(one["device"])) for one in results
        if one.get("driver") == DRIVER and not one.get("adminAccess", False)
    }  # fmt: skip


def requested_by(claim: Json) -> int:
    """How many cards a claim of `claim_spec` asks for."""
    return len(claim["spec"].get("devices", {}).get("requests", ()))


def cards_of(devices: Iterable[Device], taken: set[Place]) -> tuple[Card, ...]:
    """What is there for replicas: cards that nobody else has claimed and whose driver does not keep pods away."""
    return tuple(
        Card(id=one.uuid, product=one.product, memory_bytes=one.memory_bytes)
        for one in devices
        if one.healthy and (one.pool, one.name) not in taken
    )


def is_device(card: str) -> bool:
    """Whether a card is one that is claimed, and not one that a device plugin counts."""
    return card.startswith(_REAL)


def claim_spec(cards: Iterable[str]) -> dict[str, Any]:
    """A claim of exactly these cards."""
    return {"devices": {"requests": [
        {"name": f"gpu-{index}", "exactly": {
            "deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": (
                f"device.driver == '{DRIVER}' && 'uuid' in device.attributes['{DRIVER}'] "
                f"&& device.attributes['{DRIVER}'].uuid == '{card}'"
            )}}],
        }}
        for index, card in enumerate(cards)
    ]}}  # fmt: skip
