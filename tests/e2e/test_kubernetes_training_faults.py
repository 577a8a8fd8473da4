"""Trainers and clusters that do not do as they should, on a real Kubernetes control plane: the demand is served or
told, no GPU is given twice, and training goes on from its last checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from deploy.kubernetes.resources import NODES, Resource
from deploy.kubernetes.training.shaping import LABEL_JOB
from tests.support.held_trainer import held_in
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import JOB, MODEL, Training, job, one_gpu, small, steps
from tests.support.kube_world import NAMESPACES, World, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

SHORT = {"ackTimeout": "2s", "saveTimeout": "3s", "grace": "2s"}
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SLEEPER = ["python", "-c", "import time; time.sleep(600)"]


async def member(here: World) -> str:
    """The name of the job's only pod."""
    (name,) = [one["metadata"]["name"] for one in await here.pods()
               if LABEL_JOB in one["metadata"]["labels"] and one["status"].get("phase") == "Running"]  # fmt: skip
    return str(name)


async def test_a_pod_that_hangs_is_ended_on_the_clock_of_its_contract(plane: ControlPlane, tmp_path: Path) -> None:
    """It answers no notice, no SIGTERM: it is evicted, its kubelet kills it after the grace, the request is answered,
    and training goes on from its last checkpoint."""
    async with world(plane, tmp_path, one_gpu("hung")) as here:
        training = Training(here)
        await here.relume.start()
        await here.apply(MODEL)
        command = small(tmp_path, 200, 0.05, "--every", "10")
        await training.apply(job(tmp_path, command, checkpoint=SHORT))
        await training.until("it has saved", lambda seen: (seen["checkpoint"] or {}).get("step", 0) >= 10)
        here.kubelet.pod(await member(here)).freeze()
        answer = await here.chat()
        assert answer.status == 200, await answer.text()
        done = await training.state("Finished", 180.0)
        (reclaim,) = await training.reclaims()
        assert done["resumedStep"] >= 10
        assert done["resumedStep"] % 10 == 0
        assert "stopping" in [step["state"] for step in reclaim["history"]]
        assert sorted(set(steps(tmp_path))) == list(range(200))


async def test_a_budget_that_forbids_is_respected_and_told(plane: ControlPlane, tmp_path: Path) -> None:
    """A trainer that does not listen is behind a PodDisruptionBudget: it is never ended by force, its object says why,
    and the model's request is answered as soon as the budget allows it."""
    async with world(plane, tmp_path, one_gpu("budget")) as here:
        training = Training(here)
        await here.relume.start()
        await here.apply(MODEL)
        path = BUDGETS.path(here.namespace, "keep")
        budget = {"apiVersion": "policy/v1", "kind": BUDGETS.kind, "metadata": {"name": "keep"},
                  "spec": {"minAvailable": 1, "selector": {"matchLabels": {LABEL_JOB: JOB}}}}  # fmt: skip
        await here.api.apply(path, budget, {"fieldManager": "tests"})
        await training.apply(job(tmp_path, SLEEPER, checkpoint=SHORT | {"channels": []}))
        await training.state("Running")
        pod = await member(here)
        asking = asyncio.create_task(here.chat())

        async def told() -> bool:
            return "EvictionBlocked" in await training.reasons()

        await here.until("it is told", told)
        assert await member(here) == pod
        assert not asking.done()
        conditions = {one["type"]: one for one in (await training.found())["status"]["conditions"]}
        assert "disruption budget" in json.dumps(conditions["Disturbed"])
        await here.api.delete(path)
        try:
            assert (await asking).status == 200
        except TimeoutError:
            raise AssertionError(
                json.dumps([await training.reclaims(), await training.status(), await here.status()])
            ) from None
        await training.until("it is started again", lambda seen: seen["run"] == 2 and seen["state"] == "Running", 180.0)


async def test_a_node_that_is_gone_takes_no_step_with_it(plane: ControlPlane, tmp_path: Path) -> None:
    """The node falls silent: nothing is started elsewhere, for its pod may still train, and people are told. Its object
    is deleted: the next run goes on elsewhere, from the last checkpoint."""
    nodes = [FakeNode(f"gone-{number}-{os.getpid()}", extended={"nvidia.com/gpu": 1}) for number in range(2)]
    async with world(plane, tmp_path, nodes) as here:
        training = Training(here)
        await here.relume.start()
        await training.apply(job(tmp_path, small(tmp_path, 150, 0.05, "--every", "10")))
        seen = await training.until("it has saved", lambda seen: (seen["checkpoint"] or {}).get("step", 0) >= 10)
        (node,) = {one["node"] for one in seen["processes"]}
        here.kubelet.lose(node)

        async def told() -> bool:
            return "NodeSilent" in await training.reasons()

        await here.until("it is told", told)
        assert (await training.status())["run"] == 1
        await here.api.delete(NODES.path("", node))
        again = await training.until("it goes on", lambda seen: seen["run"] == 2 and seen["state"] == "Running", 180.0)
        assert {one["node"] for one in again["processes"]}.isdisjoint({node})
        done = await training.state("Finished")
        assert done["resumedStep"] >= 10
        assert sorted(set(steps(tmp_path))) == list(range(150))


async def test_a_deleted_namespace_ends_its_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    """Its pods save and go, the declaration goes with its object, nothing is made anew, and relume lives on."""
    async with world(plane, tmp_path, one_gpu("space")) as here:
        training = Training(here)
        await here.relume.start()
        await training.apply(job(tmp_path, small(tmp_path, 10_000)))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        await here.api.delete(NAMESPACES.path("", here.namespace))

        async def gone() -> bool:
            status = await training.status()
            return not await here.pods() and (not status or status["state"] == "Cancelled")

        await here.until("nothing is left", gone)
        assert here.relume.runs
        assert (tmp_path / "checkpoints").is_dir()


@pytest.mark.parametrize("state", ["notified", "saving"])
async def test_relume_is_killed_in_the_middle(plane: ControlPlane, tmp_path: Path, state: str) -> None:
    """kill -9 while a reclaim is in this state: the next relume goes on with the same pod and the same notice, and no
    step is lost or made twice."""
    async with world(plane, tmp_path, one_gpu("kill")) as here:
        training = Training(here)
        await here.relume.start()
        await here.apply(MODEL)
        await training.apply(job(tmp_path, small(tmp_path, 200, 0.05, "--save-seconds", "2")))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)

        async def reached() -> bool:
            return any(one["state"] == state for one in await training.reclaims())

        with held_in(state, tmp_path):
            asking = asyncio.create_task(here.chat())
            await here.until(f"a reclaim is {state}", reached)
            await here.relume.kill()
        await asyncio.gather(asking, return_exceptions=True)
        await here.relume.start()
        assert (await here.chat()).status == 200
        await training.state("Finished", 180.0)
        assert steps(tmp_path) == list(range(200))
        assert all(one["ended"] for one in await training.reclaims())
