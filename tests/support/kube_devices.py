"""A driver for Dynamic Resource Allocation, as far as the control plane sees one: its class, and cards by node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.devices import CLAIMS, DRIVER, GROUP, SLICES, VERSION
from deploy.kubernetes.resources import PODS, Json, Resource

CLASSES: Final = Resource(GROUP, VERSION, "deviceclasses", "DeviceClass", namespaced=False)
OURS: Final = {"fieldManager": "tests"}


def card(name: str, uuid: str, *, sick: bool = False) -> dict[str, Any]:
    """A card as NVIDIA's driver publishes it; `sick`: it keeps pods away from it."""
    attributes = {"type": "gpu", "uuid": uuid, "productName": "NVIDIA H100 80GB HBM3", "architecture": "Hopper"}
    made: dict[str, Any] = {
        "name": name, "attributes": {key: {"string": text} for key, text in attributes.items()},
        "capacity": {"memory": {"value": "80Gi"}},
    }  # fmt: skip
    return made | ({"taints": [{"key": f"{DRIVER}/xid", "effect": "NoSchedule"}]} if sick else {})


def slice_of(node: str, cards: Sequence[Json], generation: int = 1) -> dict[str, Any]:
    """All cards of a node."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"apiVersion": SLICES.api_version, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(cards)}}  # fmt: skip


async def publish(api: KubeApi, node: str, cards: Sequence[Json], generation: int = 1) -> None:
    """What the driver on a node does, with what its chart installs once."""
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    chosen = {"apiVersion": CLASSES.api_version, "kind": "DeviceClass", "metadata": {"name": DRIVER},
              "spec": {"selectors": [{"cel": {"expression": expression}}]}}  # fmt: skip
    await api.apply(CLASSES.path("", DRIVER), chosen, OURS)
    body = slice_of(node, cards, generation)
    await api.apply(SLICES.path("", body["metadata"]["name"]), body, OURS)


async def withdraw(api: KubeApi, node: str) -> None:
    """The driver of a node is gone."""
    await api.delete(SLICES.path("", f"{node}-gpus"))


@asynccontextmanager
async def published(api: KubeApi, node: str) -> AsyncIterator[None]:
    """A driver with one card on a node, until the end."""
    await publish(api, node, [card("gpu-0", f"GPU-{node}")])
    try:
        yield
    finally:
        await withdraw(api, node)


async def claim_as_another(api: KubeApi, namespace: str, uuid: str) -> None:
    """A pod of somebody else that holds a card."""
    selector = f"device.attributes['{DRIVER}'].uuid == '{uuid}'"
    request = {"name": "one", "exactly": {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": selector}}]}}
    body = {"apiVersion": CLAIMS.api_version, "kind": "ResourceClaim", "metadata": {"name": "other"},
            "spec": {"devices": {"requests": [request]}}}  # fmt: skip
    await api.create(CLAIMS.path(namespace), body)
    container = {"name": "a", "image": "a", "command": ["sleep", "600"], "resources": {"claims": [{"name": "gpu"}]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"},
           "spec": {"containers": [container], "terminationGracePeriodSeconds": 1,
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": "other"}]}}  # fmt: skip
    await api.create(PODS.path(namespace), pod)


async def claims(api: KubeApi, namespace: str) -> dict[str, tuple[str, ...]]:
    """The devices of each claim, by its name."""
    found = (await api.get(CLAIMS.path(namespace)))["items"]
    return {
        one["metadata"]["name"]: tuple(
            result["device"]
            for result in one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        )
        for one in found
    }
