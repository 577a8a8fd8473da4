"""An object is enrolled whose pods run already, and have all the room that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kubernetes.resources import DEPLOYMENTS
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import annotated
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def running(here: World, count: int) -> set[str]:
    """The uids of so many pods, once they run."""

    async def run() -> bool:
        return [one["status"].get("phase") for one in await here.pods()] == ["Running"] * count

    await here.until(f"{count} pods run", run)
    return {one["metadata"]["uid"] for one in await here.pods()}


async def test_its_own_pods_are_the_first_replicas(plane: ControlPlane, tmp_path: Path) -> None:
    """Another model, of higher priority, that waits for a GPU gets none of theirs, and none is told to be free. A
    request is answered by a pod that runs already, and no other one is made; the one that is not needed goes, and the
    other model has its turn."""
    nodes = [FakeNode("full-a", extended={"nvidia.com/gpu": 1}), FakeNode("full-b", extended={"nvidia.com/gpu": 1})]
    async with world(plane, tmp_path, nodes) as here:
        await annotated(here, DEPLOYMENTS, **{"relume.dev/keep-alive": "4s"})
        await here.api.merge(DEPLOYMENTS.path(here.namespace, "mistral-7b"), {"spec": {"replicas": 2}})
        before = await running(here, 2)
        await here.relume.start()
        await here.known("mistral")
        await here.apply(pod_model(minReplicas=1, maxReplicas=1, extra="  priority: 900\n"))

        async def waits() -> bool:
            return "shortage" in (await here.status())

        await here.until("the other one is short", waits)

        async def told() -> bool:
            """Until it is known whose pods they are, their GPUs are others'."""
            async with here.session.get(f"{here.relume.endpoints['admin']}/v1alpha1/gpus") as answer:
                inventory = await answer.json()
            assert inventory["free"] == 0, inventory
            return bool(inventory["total"] == 2)

        await here.until("both GPUs are told", told)
        assert (await here.chat("mistral")).status == 200
        labels = {one["metadata"]["uid"]: one["metadata"]["labels"] for one in await here.pods()}
        assert {uid for uid, found in labels.items() if found.get("app") == "mistral-7b"} <= before
        await here.state("Ready")
