"""GPUs that a driver publishes one by one (Dynamic Resource Allocation): claimed for pods, bound by the scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube_devices import card, claim_as_another, claims, publish, withdraw
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import Training, job
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

FIRST, SECOND, THIRD = (f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(3))


async def offers(here: World, node: str, *cards: str) -> bool:
    """Whether a node has these cards, and no other, by what was told last."""
    told: list[dict[str, Any]] = [one for one in await here.told("relume.cards") if one["node"] == node]
    return bool(told) and tuple(one["id"] for one in told[-1]["cards"]) == cards


async def test_a_replica_gets_exactly_the_card_that_it_was_granted(plane: ControlPlane, tmp_path: Path) -> None:
    """On a node whose GPUs are claimed: a card that another pod holds is nobody's to grant, nor one that is sick; a
    model from zero gets the one that is left, a claim that goes with its pod; training gets a card likewise."""
    node = f"dra-{os.getpid()}"
    async with world(plane, tmp_path, [FakeNode(node)]) as here:
        cards = [card("gpu-0", FIRST), card("gpu-1", SECOND, sick=True), card("gpu-2", THIRD)]
        await publish(here.api, node, cards)
        try:
            await claim_as_another(here.api, here.namespace, FIRST)

            async def held() -> bool:
                return await claims(here.api, here.namespace) == {"other": ("gpu-0",)}

            await here.until("another pod holds its card", held)
            await here.relume.start()
            await here.until("one card is there", lambda: offers(here, node, THIRD))
            await here.apply(pod_model(minReplicas=0, maxReplicas=1, keepAlive="1s", stableWindow="2s"))
            await here.known()
            answer = await here.chat()
            assert answer.status == 200, await answer.text()
            pod = next(one for one in await here.pods() if one["metadata"]["name"] != "other")
            name = pod["metadata"]["name"]
            assert pod["status"]["phase"] == "Running"
            assert await claims(here.api, here.namespace) == {"other": ("gpu-0",), name: ("gpu-2",)}
            await here.state("Zero")
            await here.until("the claim has gone with its pod", held)

            await publish(here.api, node, [card("gpu-0", FIRST), card("gpu-1", SECOND), card("gpu-2", THIRD)], 2)
            await here.until("the card that was sick is there", lambda: offers(here, node, SECOND, THIRD))
            training = Training(here)
            await training.apply(job(Path("/tmp"), ["true"], resources={"gpus": 2, "cpu": 0.1, "memory": "64Mi"}))
            done = await training.state("Finished")
            assert done["run"] == 1
            await training.here.api.delete(f"/apis/relume.dev/v1alpha1/namespaces/{here.namespace}/trainingjobs/tune")
        finally:
            await withdraw(here.api, node)
