"""Enrolled objects whose controllers end pods in an order of their own, and those that no node has room for."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.kubernetes.resources import DEPLOYMENTS, STATEFUL_SETS, Json
from tests.e2e.test_kubernetes_annotated import serving
from tests.e2e.test_kubernetes_nodes import calls, none_waits, stand_ins, waits
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import annotated
from tests.support.kube_world import World, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

LONG: Final = 3000
"""Tokens of a request that another pod's end must not outlast."""
_COUNTS: Final = re.compile(r"^vllm:(num_requests_running|request_success_total)\{[^}]*\} (\d+)", re.MULTILINE)


async def counted(here: World, pod: str) -> tuple[int, int]:
    """How many requests a pod runs, and has answered whole."""
    url = f"http://{here.kubelet.pod(pod).address}:8000/metrics"
    async with here.session.get(url) as answer:
        found = _COUNTS.findall(await answer.text())
    sums = {name: sum(int(value) for key, value in found if key == name) for name, _ in found}
    return sums.get("num_requests_running", 0), sums.get("request_success_total", 0)


async def seen(here: World) -> list[dict[str, Any]]:
    """All that was ever told of replicas."""
    return [one for state in await here.told("relume.replicas") for one in state.get("replicas", ())]


async def test_a_statefulset_loses_no_request_whichever_pod_it_ends(plane: ControlPlane, tmp_path: Path) -> None:
    """Three pods run a request each, and two are wanted: the last pod's replica drains to its end, the others serve on.
    Then a new revision takes over under load: replicas are drained before the set ends their pods, though it ends
    those of the new revision first."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await annotated(here, STATEFUL_SETS, **{"relume.dev/min-replicas": "3"})
        path = STATEFUL_SETS.path(here.namespace, "mistral-7b")
        before = await here.until("three serve", lambda: serving(here, 3))
        answered = {name: (await counted(here, name))[1] for name in before}
        asking = [asyncio.create_task(here.chat("mistral", max_tokens=LONG)) for _ in before]

        async def one_each() -> bool:
            return [(await counted(here, name))[0] for name in sorted(before)] == [1, 1, 1]

        await here.until("each runs one", one_each)
        url = f"{here.relume.endpoints['admin']}/v1alpha1/models/mistral/scale"
        async with here.session.put(url, json={"replicas": 2, "for": "1h"}) as answer:
            assert answer.status == 200, await answer.text()
        assert {(await one).status for one in asking} == {200}
        after = await here.until("two serve", lambda: serving(here, 2))
        assert after == {name: before[name] for name in ("mistral-7b-0", "mistral-7b-1")}
        assert [(await counted(here, name))[1] - answered[name] for name in after] == [1, 1]
        told = await seen(here)
        assert {one["ordinal"] for one in told if one["state"] == "Draining"} == {2}
        assert {one["reason"] for one in told} == {""}
        assert (await here.api.get(path))["spec"]["replicas"] == 2
        await rolls_out(here)


async def rolls_out(here: World) -> None:
    """Another number of slots, while requests go on."""
    over, statuses = asyncio.Event(), list[int]()

    async def ask() -> None:
        while not over.is_set():
            statuses.append((await here.chat("mistral", max_tokens=200)).status)

    asking = [asyncio.create_task(ask()) for _ in range(3)]
    path = STATEFUL_SETS.path(here.namespace, "mistral-7b")
    await here.api.merge(path, {"metadata": {"annotations": {"relume.dev/slots": "3"}}})

    async def taken_over() -> bool:
        newest = (await here.told("relume.replicas"))[-1]["replicas"]
        return [(one["state"], one["slots"]) for one in newest] == [("Ready", 3)] * 2 and bool(await serving(here, 2))

    await here.until("the new revision serves alone", taken_over, 180.0)
    over.set()
    await asyncio.gather(*asking)
    assert set(statuses) == {200}
    assert {one["reason"] for one in await seen(here)} == {"", "Displaced"}
    assert not [one for one in await seen(here) if one["state"] == "Failed"]


async def test_an_enrolled_deployment_calls_for_a_node(plane: ControlPlane, tmp_path: Path) -> None:
    """No node has a GPU: a held request has a pod wait that asks for what the Deployment's would, and that its
    ReplicaSet does not take for its own. A person's zero ends the call; the next one brings a node and an answer."""
    node = f"called-{os.getpid()}"
    async with world(plane, tmp_path, []) as here:
        path = DEPLOYMENTS.path(here.namespace, "mistral-7b")
        await here.relume.start()
        await calls(here)
        await annotated(here, DEPLOYMENTS)
        await here.known("mistral")
        asking = asyncio.create_task(here.chat("mistral"))
        pod = await waits(here)
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner.get("controller")) == ("Deployment", "mistral-7b", None)
        assert "app" not in pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert (await here.api.get(path))["spec"]["replicas"] == 0
        url = f"{here.relume.endpoints['admin']}/v1alpha1/models/mistral/scale"
        async with here.session.put(url, json={"replicas": 0, "for": "1h"}) as answer:
            assert answer.status == 200, await answer.text()
        await none_waits(here)
        async with here.session.delete(url) as answer:
            assert answer.status == 200, await answer.text()
        await waits(here)
        await here.kubelet.add(FakeNode(node, extended={"nvidia.com/gpu": 1}))
        answer = await asking
        assert answer.status == 200, await answer.text()

        async def alone() -> Json | None:
            pods = await here.pods()
            return pods[0] if len(pods) == 1 and not await stand_ins(here) else None

        served = await here.until("one pod is left", alone)
        assert (served["spec"]["nodeName"], served["metadata"]["labels"]["app"]) == (node, "mistral-7b")

        async def zero() -> bool:
            return bool((await here.api.get(path))["spec"].get("replicas") == 0 and not await here.pods())

        await here.until("it is at zero", zero)
