"""The first story on a real Kubernetes control plane: zero, a held request, pods, an answer, a burst, zero."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import pod_model, world

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
        answers = await asyncio.gather(*(here.chat(max_tokens=200) for _ in range(24)))
        assert {one.status for one in answers} == {200}
        await here.state("Zero")

        async def none() -> bool:
            return not await here.pods()

        await here.until("no pod is left", none)
        reasons = [one["reason"] for one in await here.events()]
        assert (reasons[0], reasons[-1]) == ("Starting", "Zero"), reasons
        assert "Ready" in reasons
        status = (await here.model())["status"]
        assert (status["observedGeneration"], status["replicas"], status["wanted"]) == (1, 0, 0)
        assert {one["type"] for one in status["conditions"]} == {"Accepted", "Ready", "Granted", "Starts"}
