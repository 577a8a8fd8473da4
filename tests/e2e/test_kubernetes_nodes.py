"""From and to zero nodes on a real control plane: what has no room calls for a node, and is told when none comes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.kubernetes.resources import GPU_POOLS, PODS, Json
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import says
from tests.support.kube_world import World, parsed, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

STAND_IN = "relume.dev/stand-in"


async def calls(here: World, **times: str) -> None:
    """Let models call for nodes."""
    said = ", ".join(f"{name}: {value}" for name, value in {"after": "0s", **times}.items())
    text = "{apiVersion: relume.dev/v1alpha1, kind: GpuPool, metadata: {name: default}, spec: {nodeCalls: {%s}}}"
    path = GPU_POOLS.path(here.namespace, "default")
    await here.api.apply(path, parsed(text % said), {"fieldManager": "tests"})

    async def in_force() -> bool:
        return bool((await here.api.get(path)).get("status", {}).get("state") == "InForce")

    await here.until("the pool's settings are in force", in_force)


def model(pool: str) -> str:
    """A Model on nodes of a pool that nobody else uses."""
    pod = "pod: {image: relume.test/relume:1"
    return pod_model().replace(pod, f"{pod}, nodeSelector: {{pool: {pool}}}, priorityClass: system-node-critical")


async def stand_ins(here: World) -> list[Json]:
    """The stand-ins that are there."""
    return [pod for pod in await here.pods() if STAND_IN in pod["metadata"]["labels"]]


async def waits(here: World) -> Json:
    """A stand-in that the scheduler finds no node for."""

    async def unschedulable() -> Json | None:
        for pod in await stand_ins(here):
            for one in pod["status"].get("conditions", ()):
                if one["type"] == "PodScheduled" and one["reason"] == "Unschedulable":
                    return pod
        return None

    found: Json = await here.until("a stand-in waits", unschedulable)
    return found


async def none_waits(here: World) -> None:
    """Return once no stand-in is there."""

    async def none() -> bool:
        return not await stand_ins(here)

    await here.until("no stand-in is left", none)


async def test_a_request_brings_a_node_and_is_answered_on_it(plane: ControlPlane, tmp_path: Path) -> None:
    """There is no node at all: a held request has a stand-in wait that asks for what a replica would. Once a node is
    there the one replica is granted on it, the stand-in goes, the request is answered, and all goes back to zero."""
    pool = f"calls-{os.getpid()}"
    async with world(plane, tmp_path, []) as here:
        await here.relume.start()
        await calls(here)
        await here.apply(model(pool))
        await here.state("Zero")
        asked = asyncio.create_task(here.chat())
        pod = await waits(here)
        spec = pod["spec"]
        assert spec["nodeSelector"] == {"pool": pool}
        assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert (spec.get("priority"), "affinity" in spec) == (0, False)
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == (await here.model())["metadata"]["uid"]

        async def told() -> dict[str, Any] | None:
            status = await here.status()
            return status if (status.get("nodeCall") or {}).get("waiting") == 1 else None

        status = await here.until("the call is told", told)
        assert (status["reason"], status["nodeCall"]["replicas"]) == ("CallsForNodes", 1)

        async def an_event() -> bool:
            return "CallsForNodes" in {one["reason"] for one in await here.events()}

        await here.until("the call is an Event", an_event)
        await says(here, pod, "NotTriggerScaleUp", "max node group size reached")

        async def heard() -> bool:
            found = (await here.model())["status"]["conditions"]
            return any("cluster-autoscaler says NotTriggerScaleUp: max node" in one["message"] for one in found)

        await here.until("what the autoscaler says is told", heard)
        await here.kubelet.add(FakeNode(f"new-{pool}", extended={"nvidia.com/gpu": 1}, labels={"pool": pool}))
        answer = await asked
        assert answer.status == 200, await answer.text()
        await none_waits(here)
        (replica,) = await here.pods()
        assert replica["spec"]["nodeName"] == f"new-{pool}"
        grants = await here.told("relume.grants")
        called = [one for one in grants if (one.get("shortage") or {}).get("call")]
        assert {one["shortage"]["call"]["replicas"] for one in called} == {1}
        assert all(len(one["replicas"]) + bool(one.get("shortage")) <= 1 for one in grants if "replicas" in one)
        await here.state("Zero")
        assert "Zero" in {one["reason"] for one in await here.events()}


async def test_a_call_ends_by_its_deadline_or_by_a_person(plane: ControlPlane, tmp_path: Path) -> None:
    """No node comes: the stand-in goes at the deadline, and whoever waits is told, as is whoever comes within the
    pause. After it the next call's stand-in is deleted by hand: that ends the call, and a person's zero all calling."""
    async with world(plane, tmp_path, []) as here:
        await here.relume.start()
        await calls(here, deadline="6s", pause="8s")
        await here.apply(f"{model(f'none-{os.getpid()}')}  coldStart: {{hold: {{maxWait: 10s}}}}\n")
        await here.state("Zero")
        asked = asyncio.create_task(here.chat())
        await waits(here)
        await refused(await asked, "no node came within 6s")
        await none_waits(here)

        async def ended() -> bool:
            condition = await called(here)
            return (condition.get("status"), condition.get("reason")) == ("False", "NoNodeCame")

        await here.until("the object tells the end of the call", ended)

        async def again() -> list[Json]:
            answer = await here.chat()  # demand that goes on
            assert answer.status in (503, 504)
            return await stand_ins(here)

        (pod, *_) = await here.until("the next call", again)
        await here.api.delete(PODS.path(here.namespace, pod["metadata"]["name"]))

        async def cancelled() -> bool:
            return (await called(here)).get("reason") == "CallCancelled"

        await here.until("the deletion takes the call back", cancelled)
        await refused(await here.chat(), "somebody deleted a stand-in")
        url = f"{here.relume.endpoints['admin']}/v1alpha1/models/echo/scale"
        async with here.session.put(url, json={"replicas": 0, "for": "1h"}) as answer:
            assert answer.status == 200, await answer.text()
        await here.state("Zero")
        assert "NodesCalled" not in {one["type"] for one in (await here.model())["status"]["conditions"]}
        warnings = {one["reason"] for one in await here.events() if one["type"] == "Warning"}
        assert {"NoNodeCame", "CallCancelled"} <= warnings


async def refused(answer: aiohttp.ClientResponse, why: str) -> None:
    """503 with the reason, and a time to come back."""
    assert (answer.status, why in await answer.text()) == (503, True), (answer.status, await answer.text())
    assert int(answer.headers["Retry-After"]) >= 1


async def called(here: World) -> dict[str, Any]:
    """The condition that tells of the call; empty when there is none."""

    async def said() -> dict[str, Any] | None:
        found = (await here.model())["status"].get("conditions", ())
        return next((one for one in found if one["type"] == "NodesCalled"), {})

    return await said() or {}
