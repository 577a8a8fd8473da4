"""The first story on a real Kubernetes control plane: zero, a held request, pods, an answer, a burst, zero."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.kubernetes.resources import DEPLOYMENTS, MODELS, NODES
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import burst, enrol
from tests.support.kube_world import GPU_NODE, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def test_a_request_wakes_a_model_from_zero_and_it_goes_back(plane: ControlPlane, tmp_path: Path) -> None:
    """A request to a model without pods is held, answered by a pod that the scheduler bound to a node with GPUs, and
    the model goes back to zero when nobody asks."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model())
        await here.state("Zero")
        assert await here.pods() == []
        answer = await here.chat()
        assert answer.status == 200, await answer.text()
        (pod,) = await here.pods()
        assert pod["spec"]["nodeName"] in here.kubelet.nodes
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == (await here.model())["metadata"]["uid"]
        assert await burst(here) >= 2
        await here.state("Zero")

        async def none() -> bool:
            return not await here.pods()

        await here.until("no pod is left", none)
        reasons = [one["reason"] for one in await here.events()]
        # a start may be so quick that the status goes from Zero to Ready
        assert reasons[0] in {"Starting", "Ready"}, reasons
        assert reasons[-1] == "Zero", reasons
        assert "Ready" in reasons
        status = (await here.model())["status"]
        assert (status["observedGeneration"], status["replicas"], status["wanted"]) == (1, 0, 0)
        assert {one["type"] for one in status["conditions"]} == {"Accepted", "Ready", "Granted", "Starts"}


async def test_an_enrolled_deployment_is_scaled_and_not_owned(plane: ControlPlane, tmp_path: Path) -> None:
    """A Deployment that exists already wakes by a request, grows with a burst, goes back to zero, and stays as it is;
    a number that another hand writes becomes an override."""
    async with world(plane, tmp_path) as here:
        path = DEPLOYMENTS.path(here.namespace, "mistral-7b")
        await here.relume.start()
        await enrol(here)
        before = (await here.api.get(path))["spec"]["template"]
        assert await burst(here, "mistral") >= 2

        async def zero() -> bool:
            return bool((await here.api.get(path))["spec"].get("replicas") == 0 and not await here.pods())

        await here.until("the Deployment is at zero", zero)
        await here.api.merge(DEPLOYMENTS.path(here.namespace, "mistral-7b", "scale"), {"spec": {"replicas": 1}})

        async def overridden() -> bool:
            override = (await here.status("mistral"))["override"]
            return bool(override and (override["replicas"], override["by"]) == (1, "another hand"))

        await here.until("the number is an override", overridden)
        await here.state("Ready", "mistral")
        await here.api.delete(MODELS.path(here.namespace, "mistral"))

        async def forgotten() -> bool:
            return (await here.status("mistral")).get("replicas", 0) == 0

        await here.until("nobody looks after it any more", forgotten)
        found = await here.api.get(path)
        assert (found["spec"]["replicas"], found["spec"]["template"]) == (1, before)


async def test_a_model_goes_to_nodes_that_it_may_have(plane: ControlPlane, tmp_path: Path) -> None:
    """What no node may have is told by the taint and the node before there is any pod; once the declaration tolerates
    it, the pod is on the node with the label, though another had room."""
    spot, other = f"aa-1-spot-{os.getpid()}", f"aa-2-other-{os.getpid()}"
    nodes = [FakeNode(name, extended=GPU_NODE, labels={"pool": pool}) for name, pool in ((spot, "a"), (other, "b"))]
    narrowed = "pod: {image: relume.test/relume:1, nodeSelector: {pool: a}"
    async with world(plane, tmp_path, nodes) as here:
        taints = [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]
        await here.api.merge(NODES.path("", spot), {"spec": {"taints": taints}})
        await here.relume.start()
        text = pod_model(minReplicas=1).replace("pod: {image: relume.test/relume:1", narrowed)
        await here.apply(text)

        async def told() -> bool:
            message = str((await here.status()).get("message"))
            return f"{spot} comes nearest: its taint spot=yes:NoSchedule is not tolerated" in message

        await here.until("the taint is told", told)
        assert await here.pods() == []
        await here.apply(text.replace("{pool: a}", "{pool: a}, tolerations: [{key: spot, operator: Exists}]"))
        await here.state("Ready")
        (pod,) = await here.pods()
        assert pod["spec"]["nodeName"] == spot
        assert "requiredDuringSchedulingIgnoredDuringExecution" in pod["spec"]["affinity"]["nodeAffinity"]
