"""Faults on a real Kubernetes control plane: nothing is scaled twice, and no request to a warm model is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.resources import LEASES, MODELS, PODS, Json
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_pods import MISSING
from tests.support.kube_world import GPU_NODE, UpOnKubernetes, World, arguments, pod_model, world
from tests.support.running import simulated

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

WARM = {"minReplicas": 2, "maxReplicas": 4}


@asynccontextmanager
async def traffic(here: World, model: str = "echo") -> AsyncIterator[list[int]]:
    """One request after the other while the block runs; what each was answered with."""
    statuses: list[int] = []

    async def ask() -> None:
        while True:
            statuses.append((await here.chat(model)).status)

    asking = asyncio.create_task(ask())
    try:
        yield statuses
        assert not asking.done(), asking.exception()
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def ready(here: World, count: int, model: str = "echo") -> None:
    """Return once so many replicas serve and no other pod is there."""

    async def so() -> bool:
        status, pods = await here.status(model), await here.pods()
        return bool(status) and (status["readyReplicas"], status["replicas"], len(pods)) == (count, count, count)

    await here.until(f"{count} replicas serve", so)


def uids(pods: list[Json]) -> set[str]:
    """Which pods these are."""
    return {pod["metadata"]["uid"] for pod in pods}


async def test_an_api_server_that_dies_stops_no_answer(plane: ControlPlane, tmp_path: Path) -> None:
    """While the API server is away warm models answer; when it is back the same pods go on, and relume scales again."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(**WARM))
        await ready(here, 2)
        before = uids(await here.pods())
        async with traffic(here) as statuses:
            await asyncio.to_thread(plane.kill_api_server)
            answered = len(statuses)
            await asyncio.sleep(3)  # the time of an outage
            assert len(statuses) > answered
            await asyncio.to_thread(plane.start_api_server)
            await here.apply(pod_model(**WARM | {"minReplicas": 3}))
            await ready(here, 3)
        assert set(statuses) == {200}
        assert before <= uids(await here.pods())


async def test_a_relume_that_was_killed_goes_on_with_its_pods(plane: ControlPlane, tmp_path: Path) -> None:
    """After SIGKILL the next relume takes the same pods over: none is started anew, and one that is not wanted any more
    is drained."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(**WARM))
        await ready(here, 2)
        before = uids(await here.pods())
        await here.relume.kill()
        assert uids(await here.pods()) == before
        await here.relume.start()
        assert (await here.chat()).status == 200  # before anybody has looked at the cluster

        async def taken_over() -> bool:
            return "took over 2 replicas" in here.relume.log.read_text()

        await here.until("the pods are taken over", taken_over)
        await ready(here, 2)
        assert uids(await here.pods()) == before
        await here.apply(pod_model(**WARM | {"minReplicas": 1}))
        await ready(here, 1)
        assert uids(await here.pods()) < before


async def test_a_replica_finishes_what_it_runs_before_its_pod_goes(plane: ControlPlane, tmp_path: Path) -> None:
    """Streams of a replica that is not wanted any more are answered to their end; then its pod goes."""
    slow = "startTime: 100ms, timeToFirstToken: 10ms, interTokenLatency: 20ms, cancels: always"
    many = WARM | {"options": slow}
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(**many))
        await ready(here, 2)
        streams = [asyncio.create_task(here.chat(max_tokens=200, stream=True)) for _ in range(8)]  # 4 s, all slots

        async def busy() -> bool:
            return (await here.status())["runningRequests"] == 8

        await here.until("all slots are busy", busy)
        await here.apply(pod_model(**many | {"minReplicas": 1, "maxReplicas": 1}))

        async def draining() -> bool:
            return (await here.status())["drainingReplicas"] == 1

        await here.until("one drains", draining)
        assert not any(one.done() for one in streams)
        for answer in await asyncio.gather(*streams):
            assert answer.status == 200
            assert (await answer.text()).rstrip().endswith("data: [DONE]")
        await ready(here, 1)


async def test_a_relume_that_ends_in_order_leaves_its_pods(plane: ControlPlane, tmp_path: Path) -> None:
    """SIGTERM ends relume and no pod; the Lease is free at once, so the next one need not wait for it."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await ready(here, 1)
        before = uids(await here.pods())
        assert await here.relume.stop() == 0
        lease = await here.api.get(LEASES.path(here.namespace, "relume"))
        assert lease["spec"].get("holderIdentity", "") == ""
        assert uids(await here.pods()) == before
        await here.relume.start()
        await ready(here, 1)
        assert uids(await here.pods()) == before


async def test_two_relumes_on_one_namespace_do_not_both_act(plane: ControlPlane, tmp_path: Path) -> None:
    """A second relume with a log of its own stands by for the Lease, and takes over when the first one is gone."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await ready(here, 1)
        other = UpOnKubernetes(tmp_path / "other", arguments(plane, here.namespace))
        await other.start()
        try:
            await asyncio.sleep(3)  # in which a second one that acted would have made a pod of its own
            assert len(await here.pods()) == 1
            assert "stands by for the lease relume" in other.log.read_text()
            before = uids(await here.pods())
            assert await here.relume.stop() == 0
            here.relume = other

            async def serves() -> bool:
                status = await here.status()
                return bool(status) and status["readyReplicas"] == 1

            await here.until("the other one serves", serves)
            await ready(here, 1)  # what the first one left is ended within seconds
            assert uids(await here.pods()) != before  # another log, so another declaration
        finally:
            if here.relume is not other:
                await other.kill()


async def test_a_pod_that_is_deleted_or_killed_is_replaced(plane: ControlPlane, tmp_path: Path) -> None:
    """What other hands and the kernel do to pods is told with its reason, and made good."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await ready(here, 1)
        (pod,) = await here.pods()
        await here.api.delete(PODS.path(here.namespace, pod["metadata"]["name"]))
        await failed(here, "Deleted")
        await ready(here, 1)
        (pod,) = await here.pods()
        here.kubelet.pod(pod["metadata"]["name"]).kill("OOMKilled")
        await failed(here, "OOMKilled")
        await ready(here, 1)
        (pod,) = await here.pods()
        await here.kubelet.pod(pod["metadata"]["name"]).evict("the node had no memory left")
        await failed(here, "Evicted")
        await ready(here, 1)


async def failed(here: World, reason: str, model: str = "echo") -> Json:
    """The Event that tells of a failure."""

    async def told() -> Json | None:
        return next((one for one in await here.events() if one["reason"] == reason), None)

    event: Json = await here.until(f"an Event tells {reason}", told)
    assert (event["type"], event["regarding"]["name"]) == ("Warning", model)
    return event


async def test_starts_that_cannot_be_are_told(plane: ControlPlane, tmp_path: Path) -> None:
    """An image that is not there, a command that fails, a declaration without an image: each is told in the object's
    conditions with what to do about it."""
    image = f"{MISSING}model:1"
    broken = simulated("broken", options="failStart: load", minReplicas=1, extra="  pod: {image: a}\n")
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model("pull", minReplicas=1).replace("relume.test/relume:1", image))
        await here.apply(broken)
        await here.apply(simulated("bare", minReplicas=1))
        assert (await starts(here, "pull", "ImagePullBackOff"))["message"] == f"Back-off pulling image {image}"
        assert "ended by itself with 1" in (await starts(here, "broken", "ExitedWhileStarting"))["message"]
        assert "add pod: {image: ...}" in (await starts(here, "bare", "InvalidSpec"))["message"]
        await failed(here, "ImagePullBackOff", "pull")


async def starts(here: World, name: str, reason: str) -> Any:
    """The condition that tells of failed starts, once it has this reason."""

    async def told() -> Json | None:
        status = (await here.model(name)).get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        condition: Json = conditions.get("Starts", {})
        return condition if (condition.get("status"), condition.get("reason")) == ("False", reason) else None

    return await here.until(f"{name} tells {reason}", told)


async def test_a_lost_node_is_made_good_elsewhere(plane: ControlPlane, tmp_path: Path) -> None:
    """Replicas of a node that is silent, and that are silent too, are told as lost and started on another node."""
    nodes = [FakeNode(f"{name}-{os.getpid()}", extended=GPU_NODE) for name in ("one", "two")]
    async with world(plane, tmp_path, nodes) as here:
        await here.relume.start()
        await here.apply(pod_model(minReplicas=1))
        await ready(here, 1)
        (pod,) = await here.pods()
        lost = pod["spec"]["nodeName"]
        here.kubelet.lose(lost)

        async def elsewhere() -> bool:
            status = await here.status()
            served = [one for one in await here.pods() if one["spec"].get("nodeName") != lost]
            return bool(served) and status["readyReplicas"] == 1

        await here.until("a replica serves on the other node", elsewhere)
        assert (await here.chat()).status == 200


async def test_what_others_take_is_not_granted(plane: ControlPlane, tmp_path: Path) -> None:
    """GPUs that pods of others hold are none of ours: a model that needs them is told to be short, no pod is made that
    could not start, and it starts as soon as they are free."""
    async with world(plane, tmp_path) as here:
        container = {"name": "a", "image": "a", "command": ["sleep", "600"],
                     "resources": {"limits": {"nvidia.com/gpu": "2"}}}  # fmt: skip
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"containers": [container]}}
        await here.api.create(PODS.path(here.namespace), pod)
        await here.relume.start()
        await here.apply(pod_model(gpus=3, minReplicas=1))
        event = await failed(here, "Shortage")
        assert event["note"] == "needs 3 GPUs; the largest node has 2 GPUs"
        assert [one["metadata"]["name"] for one in await here.pods()] == ["other"]
        await here.api.delete(PODS.path(here.namespace, "other"), grace=0)
        await ready(here, 1)


async def test_objects_that_go_while_nobody_looks_are_withdrawn(plane: ControlPlane, tmp_path: Path) -> None:
    """A Model that is deleted takes its pods along; one that went, or was made anew, while no relume ran is found."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        for name in ("gone", "again"):
            await here.apply(pod_model(name, minReplicas=1))
            await here.state("Ready", name)
        await here.relume.kill()
        before = await here.model("again")
        for name in ("gone", "again"):
            await here.api.delete(MODELS.path(here.namespace, name))
        await here.apply(pod_model("again", minReplicas=1))
        await here.relume.start()
        await here.state("Ready", "again")
        (pod,) = await here.until("one pod is left", lambda: _living(here, 1))
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == (await here.model("again"))["metadata"]["uid"] != before["metadata"]["uid"]
        with contextlib.suppress(AssertionError):
            status = await here.status("gone")
            assert status.get("state") in (None, "Draining")


async def _living(here: World, count: int) -> list[Json] | None:
    """All pods, once so many are there and none is ending."""
    pods = await here.pods()
    fine = len(pods) == count and all("deletionTimestamp" not in pod["metadata"] for pod in pods)
    return pods if fine else None


async def test_a_persons_number_stands_before_ours(plane: ControlPlane, tmp_path: Path) -> None:
    """spec.replicas of a Model is an override as long as it is there; what is wrong is refused and changes nothing."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model())
        await here.state("Zero")
        await here.api.merge(MODELS.path(here.namespace, "echo"), {"spec": {"replicas": 2}})
        await ready(here, 2)
        await here.api.merge(
            MODELS.path(here.namespace, "echo"), {"spec": {"engine": {"options": {"startTiem": "1s"}}}}
        )

        async def refused() -> Json | None:
            status = (await here.model()).get("status", {})
            accepted = next((one for one in status.get("conditions", ()) if one["type"] == "Accepted"), {})
            return accepted if accepted.get("status") == "False" else None

        told = await here.until("the object is refused", refused)
        assert "startTiem" in told["message"]
        assert "startTime" in told["message"]  # the remedy
        await ready(here, 2)
        await here.api.merge(
            MODELS.path(here.namespace, "echo"),
            {"spec": {"engine": {"options": {"startTiem": None}}, "replicas": None}},
        )
        await here.state("Zero")
