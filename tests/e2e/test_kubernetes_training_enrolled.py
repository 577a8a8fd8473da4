"""Jobs of others on a real Kubernetes control plane: enrolled by a label, suspended to yield, never owned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.resources import JOBS, Json
from deploy.kubernetes.training.enrolling import ANNOTATION_SUSPENDED, KUEUE
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import MODEL, ROOT, Training, one_gpu, small, steps
from tests.support.kube_world import parsed, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


def batch_job(folder: Path, *, total: int = 300, labels: str = "", contract: str = "", suspend: str = "false") -> Json:
    """A Job as one writes it, with what enrols it; its SDK listens on the pod's address."""
    text = f"""
apiVersion: batch/v1
kind: Job
metadata:
  name: tune
  labels: {{relume.dev/training: "true"{labels}}}
  annotations: {{relume.dev/training: {json.dumps(contract)}}}
spec:
  suspend: {suspend}
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 20
      volumes: [{{name: work, hostPath: {{path: {folder}}}}}]
      containers:
      - name: trainer
        image: relume.test/relume:1
        command: {json.dumps(small(folder, total))}
        env:
        - {{name: PYTHONPATH, value: {ROOT}}}
        - {{name: POD_IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
        - {{name: RELUME_NOTICE_LISTEN, value: $(POD_IP):8800}}
        - {{name: RELUME_TERMINATION_LOG, value: /dev/termination-log}}
        ports: [{{name: relume, containerPort: 8800}}]
        volumeMounts: [{{name: work, mountPath: {folder}}}]
        resources:
          limits: {{nvidia.com/gpu: "1"}}
          requests: {{cpu: 100m, memory: 64Mi, nvidia.com/gpu: "1"}}
"""
    found: Json = parsed(text)
    return found


async def test_an_enrolled_job_is_suspended_and_goes_on(plane: ControlPlane, tmp_path: Path) -> None:
    """A Job that runs already keeps its pod; for a request it saves, is suspended, and goes on where it was: each step
    is made once, and its controller has counted no failure."""
    async with world(plane, tmp_path, one_gpu("job")) as here:
        training, path = Training(here), JOBS.path(here.namespace, "tune")
        await here.relume.start()
        await here.apply(MODEL)
        await training.enrol(batch_job(tmp_path, contract="checkpoint: {ackTimeout: 20s, saveTimeout: 40s}"))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        (pod,) = await here.pods()
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
        answer = await here.chat()
        assert answer.status == 200, await answer.text()
        parked = await training.state("Parked")
        assert parked["checkpoint"]["verified"]

        async def complete() -> bool:
            conditions = (await here.api.get(path))["status"].get("conditions", ())
            return any((one["type"], one["status"]) == ("Complete", "True") for one in conditions)

        await here.until("the Job is complete", complete, 180.0)
        done = await training.state("Finished")
        found = await here.api.get(path)
        assert (done["run"], done["resumedStep"]) == (2, parked["checkpoint"]["step"])
        assert steps(tmp_path) == list(range(300))
        assert found["status"].get("failed", 0) == 0
        assert ANNOTATION_SUSPENDED not in found["metadata"]["annotations"]

        async def told() -> bool:
            return {"Running", "Parked", "Finished"} <= set(await training.reasons())

        await here.until("the Job's Events tell the story", told)


async def test_another_hands_suspension_is_respected(plane: ControlPlane, tmp_path: Path) -> None:
    """A Job that Kueue queues is told of and left alone. One that a person suspended is paused until they resume it,
    and paused again when they suspend it. A contract that is wrong is told on the Job."""
    async with world(plane, tmp_path, one_gpu("hand")) as here:
        training, path = Training(here), JOBS.path(here.namespace, "tune")
        await here.relume.start()
        await training.enrol(batch_job(tmp_path, total=10_000, labels=f", {KUEUE}: default", suspend="true"))

        async def refused() -> bool:
            return await training.reasons() == ["Refused"]

        await here.until("it is told", refused)
        assert await training.status() == {}
        await training.enrol(batch_job(tmp_path, total=10_000, contract="priority: much", suspend="true"))

        async def told() -> bool:
            return (await training.reasons()).count("Refused") == 2

        await here.until("what is wrong is told", told)
        await training.enrol(batch_job(tmp_path, total=10_000, contract="priority: 5", suspend="true"))
        await training.state("Paused")
        assert (await here.api.get(path))["spec"]["suspend"]
        await suspend(here.api, path, False)
        first = await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        await suspend(here.api, path, True)
        await training.state("Paused")
        found = await here.api.get(path)
        assert found["spec"]["suspend"]
        assert ANNOTATION_SUSPENDED not in found["metadata"]["annotations"]
        await suspend(here.api, path, False)
        again = await training.until("it goes on", lambda seen: seen["run"] > first["run"] and seen["resumedStep"])
        assert again["resumedStep"] >= first["step"]


async def suspend(api: KubeApi, path: str, so: bool) -> Json:
    """What a person does."""
    return await api.merge(path, {"spec": {"suspend": so}})
