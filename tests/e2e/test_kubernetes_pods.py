"""What people do with pods of replicas: read their logs, delete them, delete their Model, while requests run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from deploy.kubernetes.resources import MODELS, PODS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

LONG: Final = 1500
"""Tokens of a request that runs for some seconds, at 2 ms each."""


LONGER: Final = 7000
"""Of one that another pod's start must not outlast, on a busy machine."""


async def running(here: World, tokens: int = LONG) -> asyncio.Task[int]:
    """A request that runs in a replica, and goes on for some seconds; its status in the end."""

    async def asked() -> int:
        return (await here.chat(max_tokens=tokens)).status

    asking = asyncio.create_task(asked())

    async def runs() -> bool:
        return bool((await here.status()).get("runningRequests"))

    await here.until("the request runs", runs)
    return asking


async def test_logs_of_a_replica_are_those_of_its_pod(plane: ControlPlane, tmp_path: Path) -> None:
    """The last lines, and with follow those that come until the pod ends; a replica without a pod is unknown."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await here.state("Ready")
        (pod,) = await here.pods()
        replica = pod["metadata"]["annotations"]["relume.dev/replica"]
        url = f"{here.relume.endpoints['admin']}/v1alpha1/replicas/{replica}/logs"
        log = here.kubelet.pod(pod["metadata"]["name"]).log
        log.write_text("one\ntwo\nthree\n", encoding="utf-8")
        async with here.session.get(url, params={"tail": "2"}) as answer:
            assert await answer.text() == "two\nthree\n"
        async with here.session.get(url, params={"tail": "1", "follow": "true"}) as answer:
            assert await answer.content.readline() == b"three\n"
            with log.open("a", encoding="utf-8") as file:
                file.write("four\n")
            assert await answer.content.readline() == b"four\n"
            await here.apply(pod_model(minReplicas=0))
            await here.api.delete(PODS.path(here.namespace, pod["metadata"]["name"]))
            async with asyncio.timeout(60):
                await answer.content.read()  # it ends with the pod
        async with here.session.get(url.replace(replica, "nobody-r1-0")) as answer:
            assert answer.status == 404


async def test_a_pod_that_another_hand_ends_finishes_its_requests(plane: ControlPlane, tmp_path: Path) -> None:
    """Its replica drains at once, its running request is answered whole, and the pod goes right after. Another one has
    taken its place meanwhile, and answers."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1, maxReplicas=1))
        await here.state("Ready")
        (pod,) = await here.pods()
        asking = await running(here, LONGER)
        await here.api.delete(PODS.path(here.namespace, pod["metadata"]["name"]))

        async def drains() -> bool:
            told = [one for state in await here.told("relume.replicas") for one in state["replicas"]]
            return any(one["state"] == "Draining" and one["reason"] == "Deleted" for one in told)

        await here.until("the replica drains", drains)
        assert not asking.done()
        answer = await here.chat()  # of the successor: nothing new comes to what drains
        assert (answer.status, asking.done()) == (200, False)
        there = {one["metadata"]["uid"] for one in await here.pods()}
        assert (len(there), pod["metadata"]["uid"] in there) == (2, True)
        assert await asking == 200

        async def replaced() -> bool:
            there = {one["metadata"]["uid"] for one in await here.pods()}
            return bool(there) and pod["metadata"]["uid"] not in there

        await here.until("another pod is there", replaced, 30.0)  # the hook alone would last for minutes
        assert (await here.chat()).status == 200


async def test_a_deleted_model_finishes_its_requests(plane: ControlPlane, tmp_path: Path) -> None:
    """The garbage collector ends its pods, with the drain's grace: what runs is answered whole, then they go."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await here.state("Ready")
        asking = await running(here)
        await here.api.delete(MODELS.path(here.namespace, "echo"))

        async def ends() -> bool:
            return all("deletionTimestamp" in one["metadata"] for one in await here.pods())

        await here.until("its pod ends", ends)
        assert not asking.done()
        assert await asking == 200

        async def gone() -> bool:
            return not await here.pods()

        await here.until("no pod is left", gone, 30.0)
