"""Cards on Kubernetes: parts of those that HAMi shares, turns of time-sliced ones, MIG instances, and one that falls
sick."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deploy.kubernetes.hami import CHOSEN, REGISTER
from deploy.kubernetes.resources import Json
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

ONE, TWO = "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
WARM = {"maxReplicas": 2, "minReplicas": 1}


def on(node: FakeNode, name: str, resources: str, **scaling: object) -> str:
    """A model whose replicas are on a node."""
    chosen = f"pod: {{nodeSelector: {{kubernetes.io/hostname: {node.name}}}, image"
    return pod_model(name, **scaling).replace("gpus: 1", resources).replace("pod: {image", chosen)


async def pods_of(here: World, model: str, count: int) -> list[Json]:
    """So many running pods of a model."""

    async def running() -> list[Json]:
        found = [
            one for one in await here.pods()
            if one["metadata"]["labels"]["relume.dev/model"] == model and one["status"].get("phase") == "Running"
            and "deletionTimestamp" not in one["metadata"]
        ]  # fmt: skip
        return found if len(found) == count else []

    found: list[Json] = await here.until(f"{count} pods of {model} run", running, 90.0)
    return found


async def test_parts_of_cards_and_one_that_falls_sick(plane: ControlPlane, tmp_path: Path) -> None:
    """Two halves share one card of HAMi's, by its UUID, and a whole one has the other; a MIG instance is asked for by
    its resource. A time-sliced card has four turns: three go to who asks for a share of its memory, none to who wants
    it whole or more than a turn, and one is asked for at a time. The replica on a card that falls sick is the one that
    goes, not its neighbour.

    HAMi's scheduler ignores gpumem-percentage when it fits pods; here the node has enough of it.
    """
    number = os.getpid()
    cards = [{"id": uuid, "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA-A100", "health": True}
             for uuid in (ONE, TWO)]  # fmt: skip
    shared = FakeNode(f"hami-{number}", annotations={REGISTER: json.dumps(cards)},
                      extended={"nvidia.com/gpu": 20, "nvidia.com/gpumem-percentage": 1000})  # fmt: skip
    split = FakeNode(f"mig-{number}", extended={"nvidia.com/mig-1g.10gb": 2})
    sliced = FakeNode(f"sliced-{number}", extended={"nvidia.com/gpu": 4}, labels={
        "nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.memory": "23034", "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing",
    })  # fmt: skip
    plain = FakeNode(f"plain-{number}", extended={"nvidia.com/gpu": 2})
    async with world(plane, tmp_path, [shared, split, sliced, plain]) as here:
        await here.relume.start()
        await here.apply(on(shared, "half", "gpuFraction: 0.5", **WARM | {"minReplicas": 2}))
        await here.apply(on(split, "slice", "migProfile: 1g.10gb", **WARM))
        await here.apply(on(sliced, "turn", "gpuMemory: 5Gi", **WARM | {"minReplicas": 3, "maxReplicas": 3}))
        await here.apply(on(sliced, "wide", "gpuMemory: 6Gi", **WARM))
        await here.apply(on(sliced, "own", "gpus: 1", **WARM))
        await here.apply(on(plain, "whole", "gpus: 1", **WARM | {"minReplicas": 2}))
        halves = await pods_of(here, "half", 2)
        (chosen,) = {pod["metadata"]["annotations"][CHOSEN] for pod in halves}
        limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in halves]
        assert [(one["nvidia.com/gpu"], one["nvidia.com/gpumem-percentage"]) for one in limits] == [("1", "50")] * 2
        await here.apply(on(shared, "alone", "gpus: 1", **WARM))
        (alone,) = await pods_of(here, "alone", 1)
        assert {chosen, alone["metadata"]["annotations"][CHOSEN]} == {ONE, TWO}
        (instance,) = await pods_of(here, "slice", 1)
        assert instance["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "1"

        turns = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in await pods_of(here, "turn", 3)]
        assert [{key for key in one if key != "memory"} for one in turns] == [{"nvidia.com/gpu"}] * 3
        assert {one["nvidia.com/gpu"] for one in turns} == {"1"}
        models = {pod["metadata"]["labels"]["relume.dev/model"] for pod in await here.pods()}
        assert models.isdisjoint({"wide", "own"})

        first, second = sorted(pod["metadata"]["name"] for pod in await pods_of(here, "whole", 2))
        await here.kubelet.sicken(first)  # the lower name has the lower card, which a count alone would keep
        (left,) = await pods_of(here, "whole", 1)
        assert left["metadata"]["name"] == second
        assert (await here.chat("whole")).status == 200
