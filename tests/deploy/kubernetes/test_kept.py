"""What is kept of the API server's objects: of many there are, little; and what only looks like a change is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from deploy.kubernetes import hami
from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.nodes import observed
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.resources import PODS, Json
from deploy.kubernetes.views import ContainerView, NodeView, PodView, node_of, pod_of, taker_of
from deploy.kubernetes.words import Words
from tests.support.kube_fake import Scripted


def pod(name: str, namespace: str, version: int = 1, **status: str) -> dict[str, Any]:
    """A pod that takes a GPU of its node, as the API server has it."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version),
                     "creationTimestamp": "2001-09-09T01:46:40Z", "labels": {"app": "a"},
                     "annotations": {"notes": "x" * 100, hami.ALLOCATED: "GPU-1,NVIDIA,1,1:;"},
                     "managedFields": [{"manager": "kubelet"}]},
        "spec": {"nodeName": "gpu-0", "containers": [{
            "name": "engine", "image": "a", "ports": [{"containerPort": 8000}], "command": ["a"] * 20,
            "env": [{"name": "RELUME_TOKEN", "value": "t"}, {"name": "HOME", "value": "/"}],
            "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"} | status,
    }  # fmt: skip


class Server:
    """An API server with pods of two namespaces, each of which is followed by a script of its own."""

    def __init__(self, ours: Scripted, others: Scripted) -> None:
        self.scripts = {PODS.path("ours"): ours, PODS.path(): others}

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        return await self.scripts[path].get(path, query)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Json]:
        async for event in self.scripts[path].watch(path, query):
            yield event


def listed(*pods: Json) -> Json:
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": list(pods)}


async def follow(ours: list[Any], others: list[Any]) -> tuple[PodStore, Scripted, list[tuple[str, bool]]]:
    """A store at the end of both scripts, what was asked about others, and what was told of their pods."""
    told: list[tuple[str, bool]] = []
    server = Server(Scripted(*ours), Scripted(*others))
    store = PodStore(cast("KubeApi", server), "ours", lambda view, there: told.append((view.name, there)))
    running = [asyncio.create_task(one.run()) for one in store.reflectors]
    for script in server.scripts.values():
        await asyncio.wait_for(script.done.wait(), 5)
    for task in running:
        task.cancel()
    return store, server.scripts[PODS.path()], told


async def test_of_our_pods_what_is_read_is_kept_and_of_others_what_they_take() -> None:
    """Names, ports and variables of ours of a container; of a pod elsewhere its node and its cards, and no words. Of
    what the API server sent nothing else stands anywhere: who reads a field must put it into the view first."""
    store, asked, _ = await follow([listed(pod("mine", "ours")), []], [listed(pod("theirs", "elsewhere")), []])
    for reflector in store.reflectors:
        assert list(reflector.objects.values()) == [{"metadata": {"resourceVersion": "1"}}]
    mine, theirs = store.get("ours", "mine"), store.get("elsewhere", "theirs")
    assert mine is not None
    assert theirs is not None
    assert mine.containers == (ContainerView("engine", ((8000, ""),), {"RELUME_TOKEN": "t"}),)
    assert (mine.labels, mine.annotations["notes"]) == ({"app": "a"}, "x" * 100)
    assert (theirs.labels, set(theirs.annotations)) == ({}, {hami.ALLOCATED})
    assert theirs.requests == mine.requests == {"nvidia.com/gpu": 1.0}
    node = NodeView(name="gpu-0", ready=True, usable=True, allocatable={"nvidia.com/gpu": 3.0})
    assert len(observed(node, [theirs], ()).cards) == 2
    assert "metadata.namespace!=ours" in asked.asked[0]["fieldSelector"]
    assert "status.phase!=Failed" in asked.asked[0]["fieldSelector"]


async def test_a_pod_elsewhere_that_ends_is_gone_and_its_node_is_looked_at() -> None:
    """The API server takes it out of what was asked for: no word of its end, only that it is not there."""
    ends = [{"type": "DELETED", "object": pod("theirs", "elsewhere", 6, phase="Succeeded")}]
    store, _, told = await follow([listed(), []], [listed(pod("theirs", "elsewhere")), ends])
    assert list(store) == []
    assert told == [("theirs", True), ("theirs", False)]


async def test_what_we_wrote_ourselves_is_known_before_it_is_told() -> None:
    """Once; a watch that is behind changes nothing of it."""
    store, _, _ = await follow([listed(), []], [listed(), []])
    view: PodView = store.expect(pod("mine", "ours", 7))
    assert store.expect(pod("mine", "ours", 8)) is view
    assert store.reflectors[0].objects["ours/mine"]["metadata"]["resourceVersion"] == "7"


async def test_what_an_agent_says_of_a_gpu_stands_beside_what_the_kubelet_says() -> None:
    """Sick when either says so, and well again when neither does; pods on other nodes are not looked at."""
    store, _, told = await follow([listed(pod("mine", "ours")), []], [listed(pod("theirs", "elsewhere")), []])
    told.clear()
    store.unwell = lambda view: view.name == "mine"
    store.look_again("gpu-1")
    assert told == []
    store.look_again("gpu-0")
    assert [one.name for one in store if one.sick] == ["mine"]
    store.look_again("gpu-0")
    store.unwell = lambda _: False
    store.look_again("gpu-0")
    assert [one.name for one in store if one.sick] == []
    assert told == [("mine", True), ("mine", True)]


GPU = {"resources": {"requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}}


@pytest.mark.parametrize("spec", [
    {"containers": [GPU, GPU]},
    {"containers": [GPU], "initContainers": [GPU | {"restartPolicy": "Always"}, GPU]},
    {"containers": [GPU], "overhead": {"cpu": "250m"}},
    {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]},
    {"containers": [], "resources": {"requests": {"cpu": "3"}}},
], ids=["two", "sidecar", "overhead", "slice", "whole"])  # fmt: skip
@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_node_has_the_same_whether_all_of_a_pod_elsewhere_is_kept_or_little(
    spec: Json, phase: str, *, shared: bool
) -> None:
    """Its containers, sidecars and overhead, slices of cards, HAMi's word, and its end."""
    annotations = {hami.REGISTER: "GPU-1,10,46068,100,NVIDIA-L40S,0,true:"} if shared else {}
    card = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "2", "cpu": "16", "memory": "64Gi"}
    node = node_of({"metadata": {"name": "gpu-0", "annotations": annotations},
                    "status": {"allocatable": card, "conditions": [{"type": "Ready", "status": "True"}]}})  # fmt: skip
    item = pod("theirs", "elsewhere", phase=phase) | {"spec": {"nodeName": "gpu-0", **spec}}
    assert observed(node, [taker_of(item)], ()) == observed(node, [pod_of(item)], ())
    assert (observed(node, [taker_of(item)], ()) == observed(node, [], ())) is (phase in ("Succeeded", "Failed"))


def model(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": "u", "generation": 1, "resourceVersion": "1", **metadata}}


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (model(), False),
        (model(resourceVersion="2") | {"status": {"state": "Ready"}}, False),
        (model(generation=2), True),
        (model(uid="v"), True),
        (model(labels={"a": "b"}), True),
        (model(annotations={"relume.dev/replicas-until": "x"}), True),
        (model(deletionTimestamp="2001-09-09T01:46:40Z"), True),
        (None, True),
    ],
)
def test_a_status_that_was_written_says_nothing_new(now: Json | None, says: bool) -> None:
    """Everything that people write does; after it is gone, the same object is new."""
    words = Words()
    assert words.changed("n/a", model())
    assert words.changed("n/a", now) is says
    assert words.changed("n/a", now) is (now is None)
