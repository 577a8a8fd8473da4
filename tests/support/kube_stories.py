"""Stories that several tests tell on the cluster: a burst, and a Deployment that is enrolled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from deploy.kubernetes.resources import (
    DEPLOYMENTS,
    EVENTS,
    GPU_POOLS,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Json,
    Resource,
)
from deploy.kubernetes.times import micro_time
from events.clock import SystemClock
from tests.support.kube_world import World, parsed, pod_model
from tests.support.running import simulated

DEPLOYMENT: Final = """
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
               --time-to-first-token, 10ms, --inter-token-latency, 2ms, --max-model-len, "8192"]
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


async def enrol(here: World) -> None:
    """Make the Deployment, and a Model of it; returns when relume knows it, at zero."""
    text = DEPLOYMENT.replace("ROOT", str(Path(__file__).parents[2]))
    await here.api.apply(DEPLOYMENTS.path(here.namespace, "mistral-7b"), parsed(text), {"fieldManager": "tests"})
    await here.apply(enrolled())
    await here.state("Zero", "mistral")


ANNOTATIONS: Final = {
    "relume.dev/slots": "4", "relume.dev/max-replicas": "4", "relume.dev/keep-alive": "2s",
    "relume.dev/spec": "resources: {gpus: 1, cpu: 0.1, memory: 64Mi}\nscaling: {stableWindow: 4s, panicWindow: 1s}",
}  # fmt: skip


async def annotated(here: World, resource: Resource, name: str = "mistral", **annotations: str | None) -> None:
    """A Deployment or StatefulSet, enrolled by annotations as model `name`; None takes one away."""
    text = DEPLOYMENT.replace("ROOT", str(Path(__file__).parents[2])).replace("mistral", name)
    body = parsed(text)
    body["kind"] = resource.kind
    told = ANNOTATIONS | {"relume.dev/model": name} | annotations
    body["metadata"]["annotations"] = {key: word for key, word in told.items() if word}
    if resource is STATEFUL_SETS:
        body["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    await here.api.apply(resource.path(here.namespace, f"{name}-7b"), body, {"fieldManager": "tests"})


async def through_admin_port(here: World) -> None:
    """What the command line does to objects and pods: apply, logs, scale, delete; to a pool too."""
    admin = f"{here.relume.endpoints['admin']}/v1alpha1"
    headers = {"Content-Type": "application/yaml"}
    document = pod_model("own", minReplicas=1).encode()
    async with here.session.post(f"{admin}/apply", data=document, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    await here.state("Ready", "own")
    async with here.session.get(f"{admin}/replicas/own-r1-0/logs") as answer:
        assert answer.status == 200, await answer.text()
    async with here.session.put(f"{admin}/models/own/scale", json={"replicas": 0, "for": "1h"}) as answer:
        assert answer.status == 200, await answer.text()
    async with here.session.delete(f"{admin}/models/own") as answer:
        assert answer.status == 200, await answer.text()
    await _train(here, admin)
    await _call(here, admin)
    pool = b"{apiVersion: relume.dev/v1alpha1, kind: GpuPool, metadata: {name: default}}"
    async with here.session.post(f"{admin}/apply", data=pool, headers=headers) as answer:
        assert answer.status == 200, await answer.text()

    async def told() -> bool:
        found = await here.api.get(GPU_POOLS.path(here.namespace, "default"))
        return bool(found.get("status", {}).get("state") == "InForce")

    await here.until("the pool's object says that it is in force", told)
    async with here.session.delete(f"{admin}/pools/default") as answer:
        assert answer.status == 200, await answer.text()


async def says(here: World, pod: Json, reason: str, note: str) -> None:
    """What a cluster autoscaler writes about a pod."""
    about = pod["metadata"]
    body = {
        "apiVersion": EVENTS.api_version, "kind": "Event", "reason": reason, "note": note, "type": "Normal",
        "metadata": {"name": f"{about['name']}.1", "namespace": here.namespace}, "action": "Scale",
        "eventTime": micro_time(SystemClock().now()), "reportingController": "cluster-autoscaler",
        "reportingInstance": "tests",
        "regarding": {"kind": "Pod", "apiVersion": "v1", "name": about["name"], "namespace": here.namespace,
                      "uid": about["uid"]},
    }  # fmt: skip
    await here.api.create(EVENTS.path(here.namespace), body)


async def _call(here: World, admin: str) -> None:
    """A model that no node has room for calls for one, and what is said of its stand-in is read."""
    pool = "{apiVersion: relume.dev/v1alpha1, kind: GpuPool, metadata: {name: default}, spec: {nodeCalls: {after: 0s}}}"
    text = f"{pool}\n---\n{pod_model('large', gpus=64, minReplicas=1)}"
    kind = {"Content-Type": "application/yaml"}
    async with here.session.post(f"{admin}/apply", data=text.encode(), headers=kind) as answer:
        assert answer.status == 200, await answer.text()

    async def stands_in() -> Json | None:
        return next((one for one in await here.pods() if "relume.dev/stand-in" in one["metadata"]["labels"]), None)

    await says(here, await here.until("a stand-in waits", stands_in), "Told", "full")

    async def heard() -> bool:
        return "cluster-autoscaler says Told: full" in str((await here.status("large"))["nodeCall"])

    await here.until("what is said of it is told", heard)
    async with here.session.delete(f"{admin}/models/large") as answer:
        assert answer.status == 200, await answer.text()


async def _train(here: World, admin: str) -> None:
    """`relume train submit`, pause, cancel, resume and delete: what stands in the object of the job."""
    text = (
        "{apiVersion: relume.dev/v1alpha1, kind: TrainingJob, metadata: {name: told}, spec: {command: [sleep, '60'], "
        "resources: {gpus: 9}, pod: {image: 'relume.test/relume:1'}}}"
    )
    kind = {"Content-Type": "application/yaml"}
    async with here.session.post(f"{admin}/apply", data=text.encode(), headers=kind) as answer:
        assert answer.status == 200, await answer.text()
    path, held = TRAINING_JOBS.path(here.namespace, "told"), []
    for verb, part in (("PUT", "/pause"), ("PUT", "/cancel"), ("DELETE", "/pause")):
        body = {} if verb == "PUT" else None
        async with here.session.request(verb, f"{admin}/training/told{part}", json=body) as answer:
            assert answer.status == 200, await answer.text()
        found = (await here.api.get(path))["metadata"]["annotations"]
        held.append((found.get("relume.dev/paused"), found.get("relume.dev/cancelled")))
    assert held == [("true", None), ("true", "true"), ("false", "false")]
    async with here.session.delete(f"{admin}/training/told") as answer:
        assert answer.status == 200, await answer.text()
    assert not (await here.api.get(TRAINING_JOBS.path(here.namespace)))["items"]


async def burst(here: World, model: str = "echo") -> int:
    """Six times what one replica takes, all at once, and all answered; how many replicas there were at its end."""
    answers = await asyncio.gather(*(here.chat(model, max_tokens=300) for _ in range(24)))
    assert {one.status for one in answers} == {200}, [await one.text() for one in answers]
    replicas: int = (await here.status(model))["replicas"]
    return replicas
