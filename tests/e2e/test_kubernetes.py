"""The first story on a real Kubernetes control plane: zero, a held request, pods, an answer, a burst, zero."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deploy.kubernetes.resources import DEPLOYMENTS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import parsed, pod_model, world
from tests.support.running import simulated

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


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: mistral-7b
  labels: {app: mistral-7b}
spec:
  replicas: 0
  selector: {matchLabels: {app: mistral-7b}}
  template:
    metadata: {labels: {app: mistral-7b}}
    spec:
      volumes:
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: 2Gi}
      containers:
      - name: mistral-7b
        image: vllm/vllm-openai:latest
        command: [python, -P, -m, runtime.engines.simulated_server]
        args: [--host, $(POD_IP), --port, "8000", --model, mistral, --max-num-seqs, "4", --startup-duration, 300ms,
               --time-to-first-token, 10ms, --inter-token-latency, 2ms]
        env:
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: PYTHONPATH, value: ROOT}
        ports: [{containerPort: 8000}]
        resources:
          limits: {cpu: "2", memory: 1Gi, nvidia.com/gpu: "1"}
          requests: {cpu: 100m, memory: 64Mi, nvidia.com/gpu: "1"}
        livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 60, periodSeconds: 10}
        readinessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 60, periodSeconds: 5}
"""
"""Of the shape that vLLM's documentation gives for GPUs ("Using Kubernetes"), its command replaced."""


def enrolled(name: str = "mistral") -> str:
    """A Model whose replicas are the Deployment's pods."""
    target = "  resources: {gpus: 1, cpu: 0.1, memory: 64Mi}\n  scaleTargetRef: {kind: Deployment, name: mistral-7b}\n"
    return simulated(name, extra=target)


async def test_an_enrolled_deployment_is_scaled_and_not_owned(plane: ControlPlane, tmp_path: Path) -> None:
    """A Deployment that exists already wakes by a request, grows with a burst, goes back to zero, and stays as it is;
    a number that another hand writes becomes an override."""
    async with world(plane, tmp_path) as here:
        text = DEPLOYMENT.replace("ROOT", str(Path(__file__).parents[2]))
        path = DEPLOYMENTS.path(here.namespace, "mistral-7b")
        await here.api.apply(path, parsed(text), {"fieldManager": "tests"})
        before = (await here.api.get(path))["spec"]["template"]
        await here.relume.start()
        await here.apply(enrolled())
        await here.state("Zero", "mistral")
        answer = await here.chat("mistral")
        assert answer.status == 200, await answer.text()
        answers = await asyncio.gather(*(here.chat("mistral", max_tokens=300) for _ in range(24)))
        assert {one.status for one in answers} == {200}
        most = (await here.status("mistral"))["replicas"]
        assert most >= 2

        async def zero() -> bool:
            return bool((await here.api.get(path))["spec"].get("replicas") == 0 and not await here.pods())

        await here.until("the Deployment is at zero", zero)
        await here.api.merge(DEPLOYMENTS.path(here.namespace, "mistral-7b", "scale"), {"spec": {"replicas": 1}})

        async def overridden() -> bool:
            override = (await here.status("mistral"))["override"]
            return bool(override and (override["replicas"], override["by"]) == (1, "another hand"))

        await here.until("the number is an override", overridden)
        await here.state("Ready", "mistral")
        found = await here.api.get(path)
        assert (found["spec"]["replicas"], found["spec"]["template"]) == (1, before)
