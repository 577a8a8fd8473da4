"""Training on the tests' cluster: jobs, what became of them, and the demand that takes their GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.kubernetes.resources import EVENTS, JOBS, TRAINING_JOBS, Json
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_world import World, pod_model

ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = ROOT / "tests" / "support" / "small_trainer.py"
JOB: Final = "tune"
MODEL: Final = pod_model(minReplicas=0, maxReplicas=1, keepAlive="1s", stableWindow="2s")
"""Wants one GPU as soon as somebody asks, and goes when nobody does."""


def one_gpu(name: str = "solo") -> list[FakeNode]:
    """A node with a single GPU."""
    return [FakeNode(f"{name}-{os.getpid()}", extended={"nvidia.com/gpu": 1})]


def small(folder: Path, steps: int = 400, pause: float = 0.05, *more: str) -> list[str]:
    """The small trainer's command: `steps` steps, with its checkpoints in `folder`."""
    return ["python", str(SMALL), str(folder), str(steps), "--pause", str(pause), *more]


def job(
    folder: Path, command: list[str], *, checkpoint: Mapping[str, object] | None = None, **spec: object
) -> dict[str, Any]:
    """A TrainingJob with one GPU a member, whose checkpoints are in a folder of the node."""
    contract: dict[str, object] = {"ackTimeout": "20s", "saveTimeout": "40s", "grace": "10s"}
    return {
        "apiVersion": TRAINING_JOBS.api_version, "kind": "TrainingJob", "metadata": {"name": JOB},
        "spec": {
            "command": command, "environment": {"PYTHONPATH": str(ROOT)},
            "resources": {"gpus": 1, "cpu": 0.1, "memory": "64Mi"},
            "checkpoint": contract | dict(checkpoint or {}),
            "pod": {"image": "relume.test/relume:1", "mounts": [{"path": str(folder), "hostPath": str(folder)}]},
            **spec,
        },
    }  # fmt: skip


class Training:
    """A training job in a world."""

    def __init__(self, here: World, name: str = JOB) -> None:
        self.here = here
        self.name = name

    async def apply(self, body: Json) -> Json:
        """What `kubectl apply` does."""
        path = TRAINING_JOBS.path(self.here.namespace, body["metadata"]["name"])
        return await self.here.api.apply(path, body, {"fieldManager": "tests"})

    async def enrol(self, body: Json) -> Json:
        """Make a Job of others."""
        return await self.here.api.apply(JOBS.path(self.here.namespace, self.name), body, {"fieldManager": "tests"})

    async def found(self) -> Json:
        """The TrainingJob object."""
        return await self.here.api.get(TRAINING_JOBS.path(self.here.namespace, self.name))

    async def status(self) -> dict[str, Any]:
        """As the admin port tells it; empty while it knows none."""
        url = f"{self.here.relume.endpoints['admin']}/v1alpha1/training/{self.name}"
        async with self.here.session.get(url) as answer:
            found: dict[str, Any] = (await answer.json())["status"] if answer.status == 200 else {}
            return found

    async def reclaims(self) -> list[dict[str, Any]]:
        """All reclaims' statuses."""
        async with self.here.session.get(f"{self.here.relume.endpoints['admin']}/v1alpha1/reclaims") as answer:
            return [item["status"] for item in (await answer.json())["items"]]

    async def until(
        self, what: str, wanted: Callable[[dict[str, Any]], object], within: float = 90.0
    ) -> dict[str, Any]:
        """Its status once it is as wanted."""
        seen: dict[str, Any] = {}

        async def so() -> bool:
            seen.clear()
            seen.update(await self.status())
            return bool(seen) and bool(wanted(seen))

        try:
            await self.here.until(what, so, within)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(seen)}\n{json.dumps(await self.reclaims())}") from None
        return seen

    async def state(self, wanted: str, within: float = 90.0) -> dict[str, Any]:
        """Its status once it is in this state."""
        return await self.until(f"the job is {wanted}", lambda seen: seen["state"] == wanted, within)

    async def reasons(self) -> list[str]:
        """The reasons of the Events about it, the oldest first."""
        found = (await self.here.api.get(EVENTS.path(self.here.namespace)))["items"]
        ours = [one for one in found if one["regarding"]["name"] == self.name
                and one.get("reportingController") == "relume.dev/cluster"]  # fmt: skip
        return [one["reason"] for one in sorted(ours, key=lambda one: str(one["eventTime"]))]


def steps(folder: Path) -> list[int]:
    """The steps that were made, in order, over all runs."""
    return [int(line.split()[0]) for line in (folder / "losses-0.txt").read_text().splitlines()]


async def takes_turns(here: World, model: str) -> None:
    """A trainer that hears nothing is evicted for a request to a model, and a Job for which there is no room is
    suspended: all that relume does to training, in short."""
    training, waits = Training(here), Training(here, "waits")
    sleeper = job(Path("/tmp"), ["python", "-c", "import time; time.sleep(600)"], checkpoint={"channels": []})
    sleeper["spec"]["resources"]["gpus"] = 4
    await training.apply(sleeper)
    await training.state("Running")
    assert (await here.chat(model)).status == 200
    container = {"name": "a", "image": "a", "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": "64"}}}
    await waits.enrol({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "waits", "labels": {"relume.dev/training": "true"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })  # fmt: skip

    async def suspended() -> bool:
        found = await here.api.get(JOBS.path(here.namespace, "waits"))
        return bool(found["spec"].get("suspend"))

    await here.until("the Job is suspended", suspended)
    await here.api.delete(TRAINING_JOBS.path(here.namespace, training.name))
