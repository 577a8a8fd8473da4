"""The preemption story on a real Kubernetes control plane: a training job's pod is told, saves, leaves its only GPU to
a model, and goes on at the exact step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.kubernetes.training.shaping import LABEL_JOB
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import MODEL, Training, job, one_gpu, small, steps
from tests.support.kube_world import world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def test_no_step_is_lost_when_a_model_takes_the_gpu(plane: ControlPlane, tmp_path: Path) -> None:
    """The notice reaches the SDK in the pod, its checkpoint is committed, the pod leaves, the request is answered on
    its GPU, and when the model idles out the job goes on where it was: each step is made once."""
    async with world(plane, tmp_path, one_gpu()) as here:
        training = Training(here)
        await here.relume.start()
        await here.apply(MODEL)
        await training.apply(job(tmp_path, small(tmp_path, 300)))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        (pod,) = [one for one in await here.pods() if LABEL_JOB in one["metadata"]["labels"]]
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == (await training.found())["metadata"]["uid"]
        answer = await here.chat()
        assert answer.status == 200, await answer.text()
        parked = await training.state("Parked")
        assert parked["checkpoint"]["verified"]
        done = await training.state("Finished", 180.0)
        (reclaim,) = await training.reclaims()
        assert (done["run"], done["resumedStep"]) == (2, parked["checkpoint"]["step"])
        assert (reclaim["state"], reclaim["ledger"]["stepsLost"]) == ("resumed", 0)
        assert steps(tmp_path) == list(range(300))

        async with here.session.get(
            f"{here.relume.endpoints['admin']}/v1alpha1/training/tune/logs", params={"member": "tune-0"}
        ) as answer:
            assert answer.status == 200, await answer.text()

        async def told() -> bool:
            return bool((await training.found()).get("status", {}).get("state") == "Finished")

        await here.until("the object says so", told)
        status = (await training.found())["status"]
        assert (status["run"], status["step"], status["resumedStep"]) == (2, 300, done["resumedStep"])
        reasons = await training.reasons()
        assert {"Running", "Parked", "Finished"} <= set(reasons), reasons


async def test_a_gang_over_two_nodes_saves_and_goes_on_together(plane: ControlPlane, tmp_path: Path) -> None:
    """Two members on two nodes agree on a step over the folder that both see, leave, and go on there."""
    nodes = [FakeNode(f"gang-{number}-{os.getpid()}", extended={"nvidia.com/gpu": 1}) for number in range(2)]
    async with world(plane, tmp_path, nodes) as here:
        training = Training(here)
        await here.relume.start()
        await here.apply(MODEL)
        line = f"exec {' '.join(small(tmp_path, 200))} --rank $RANK --world $WORLD_SIZE --board $RELUME_BOARD"
        await training.apply(job(tmp_path, ["sh", "-c", line], members=2))
        seen = await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        assert len({one["node"] for one in seen["processes"]}) == 2
        assert (await here.chat()).status == 200
        parked = await training.state("Parked")
        done = await training.state("Finished", 180.0)
        assert (done["run"], done["resumedStep"]) == (2, parked["checkpoint"]["step"])
        for rank in range(2):
            lines = (tmp_path / f"losses-{rank}.txt").read_text().splitlines()
            assert [int(one.split()[0]) for one in lines] == list(range(200))
