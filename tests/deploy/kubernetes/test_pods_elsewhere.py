"""Pods of other namespaces on a real API server: followed while they take something of a node, and no longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.kubernetes.api import ApiError, KubeApi, connect
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.resources import PODS, Json
from tests.support.kube_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

OURS, THEIRS = "kept-ours", "kept-theirs"


def pod(name: str, node: str = "") -> dict[str, Any]:
    """One that asks for half a processor."""
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "500m"}}}
    spec: Json = {"containers": [container], "automountServiceAccountToken": False, "schedulerName": "nobody"}
    bound = {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, **bound}}


async def made(api: KubeApi, namespace: str, body: Json) -> None:
    """In a namespace whose account the controllers may still have to make."""
    while True:
        try:
            await api.create(PODS.path(namespace), body)
        except ApiError as error:
            if "serviceaccount" not in error.message:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def test_a_pod_elsewhere_counts_while_it_is_bound_and_not_over(plane: ControlPlane) -> None:
    """Ours all; of the others those with a node, from their binding until their end, of which no word comes but that
    they are gone."""
    api = await connect(plane.kubeconfig)
    heard: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    store = PodStore(api, OURS, lambda view, there: heard.put_nowait((f"{view.namespace}/{view.name}", there)))

    async def until(key: str, *, there: bool) -> None:
        while await heard.get() != (key, there):
            pass

    def known() -> set[str]:
        return {f"{one.namespace}/{one.name}" for one in store if one.namespace in (OURS, THEIRS)}

    running: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(120):
            for name in (OURS, THEIRS):
                await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            await made(api, THEIRS, pod("waits"))
            await made(api, THEIRS, pod("runs", "nowhere"))
            await made(api, OURS, pod("mine"))
            running = [asyncio.create_task(one.run()) for one in store.reflectors]
            for one in store.reflectors:
                await one.synced.wait()
            assert known() == {f"{OURS}/mine", f"{THEIRS}/runs"}
            taker = store.get(THEIRS, "runs")
            assert taker is not None
            assert (taker.node, taker.requests) == ("nowhere", {"cpu": 0.5})
            binding = {"metadata": {"name": "waits"}, "target": {"kind": "Node", "name": "nowhere"}}
            await api.create(PODS.path(THEIRS, "waits", "binding"), binding)
            await until(f"{THEIRS}/waits", there=True)
            await api.merge(PODS.path(THEIRS, "runs", "status"), {"status": {"phase": "Succeeded"}})
            await until(f"{THEIRS}/runs", there=False)
            assert known() == {f"{OURS}/mine", f"{THEIRS}/waits"}
            for one in store.reflectors:
                assert one.stats.broken == 0
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for name in (OURS, THEIRS):
            await api.delete(f"/api/v1/namespaces/{name}")
        await api.close()
