"""1,000 Models of three replicas each on a real API server: what relume costs it and itself, and how quickly it acts.

API server, etcd, scheduler and controller manager are real; nodes are on paper (`bench.kubernetes.paper`). All share
the machine, so times are theirs too.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import load, machine
from bench.figures import Effort, Figure, percentile
from bench.kubernetes.paper import PaperKubelet, paper_kubelet
from bench.load import ROOT
from deploy.kubernetes.api import connect
from deploy.kubernetes.resources import MODELS, Json
from tests.support.kafka_broker import free_port
from tests.support.kube_binary import there
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, world

NODES: Final = 25
GPUS: Final = 160
"""Of each node: together more than all replicas need."""
REPLICAS: Final = 3
WITHIN: Final = 1500.0
"""Seconds for all pods to serve: the scheduler and the API server need most of it."""
MINUTE: Final = 60.0
STATUSES: Final = "relume_kubernetes_status_writes_total"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Models with replicas; models at zero that are asked for once; seconds that are watched with nothing to do."""

    models: int
    wakes: int
    idle: int


@dataclass(slots=True)
class Found:
    """What was measured; seconds, bytes, calls."""

    pods: int = 0
    ready_seconds: float = 0.0
    cpu_per_replica: float = 0.0
    calls_per_replica: float = 0.0
    writes_per_model: float = 0.0
    memory: int = 0
    idle_calls: float = 0.0
    idle_cpu: float = 0.0
    restart_seconds: float = 0.0
    reactions: tuple[float, ...] = ()


async def run(effort: Effort) -> list[Figure]:
    """Seconds, calls and bytes; per replica and per model where that is what grows."""
    if not there():
        return [Figure("models on Kubernetes", why="the control plane is not built; make kubernetes")]
    models, wakes = effort.size(1_000, 5), effort.size(50, 2)
    with load.scratch() as scratch:
        plane = ControlPlane(Path(scratch) / "plane", node_grace=600)
        plane.start()
        try:
            found = await _measure(plane, Path(scratch), Sizes(models, wakes, effort.size(60, 3)))
        finally:
            plane.stop()
    return _figures(found, models)


def _figures(found: Found, models: int) -> list[Figure]:
    what, why = f"{models:,} models of {REPLICAS} replicas", f"{found.pods:,} pods"
    return [
        Figure(f"{what}: declared to all ready", "s", found.ready_seconds, why=why),
        Figure(f"{what}: CPU a replica", "ms CPU", 1000 * found.cpu_per_replica, why=why),
        Figure(f"{what}: API calls a replica", "", found.calls_per_replica, why=why),
        Figure(f"{what}: statuses written a model", "", found.writes_per_model, why=why),
        Figure(f"{what}: memory of relume, all in one process", "MiB", found.memory / 2**20, why=why),
        Figure(f"{what}: API calls in an idle minute", "", found.idle_calls or 1e-9, why=why),
        Figure(f"{what}: CPU of an idle minute", "s CPU", found.idle_cpu, why=why),
        Figure(f"{what}: started anew to ready to serve", "s", found.restart_seconds, why=why),
        Figure(f"{what}: request to a model at zero to its pod, p50", "ms", percentile(found.reactions, 0.5), why=why),
        Figure(f"{what}: the same, p99", "ms", percentile(found.reactions, 0.99), why=f"{len(found.reactions)} wakes"),
    ]


async def _measure(plane: ControlPlane, folder: Path, sizes: Sizes) -> Found:
    port = free_port()
    nodes = [FakeNode(f"paper-{number}", cpu="256", memory="2Ti", extended={"nvidia.com/gpu": GPUS}, pods=1000)
             for number in range(NODES)]  # fmt: skip
    async with engine(port), world(plane, folder, []) as on:
        api = await connect(plane.kubeconfig)
        try:
            async with paper_kubelet(api, nodes, folder) as paper:
                return await _story(on, paper, port, sizes)
        finally:
            await api.close()


async def _story(on: World, paper: PaperKubelet, port: int, sizes: Sizes) -> Found:
    models, wakes = sizes.models, sizes.wakes
    found = Found()
    await on.relume.start()
    before, calls = machine.cpu_seconds(on.relume.pid), await _calls(on)
    began = time.monotonic()
    for number in range(models):
        await on.api.create(MODELS.path(on.namespace), _model(on, f"m-{number}", port, least=REPLICAS))
    for number in range(wakes):
        await on.api.create(MODELS.path(on.namespace), _model(on, f"zero-{number}", port, least=0))
    await on.until("all is declared", lambda: _declared(on, models + wakes), WITHIN)
    await _until(lambda: _ready(on, models * REPLICAS))
    found.ready_seconds, found.pods = time.monotonic() - began, len(paper.running)
    found.cpu_per_replica = (machine.cpu_seconds(on.relume.pid) - before) / (models * REPLICAS)
    await _quiet(on, min(5.0, sizes.idle))
    found.calls_per_replica = (await _calls(on) - calls) / (models * REPLICAS)
    found.writes_per_model = await _metric(on, STATUSES) / models
    found.memory = machine.memory_bytes(on.relume.pid)
    before, calls = machine.cpu_seconds(on.relume.pid), await _calls(on)
    await asyncio.sleep(sizes.idle)
    share = MINUTE / sizes.idle
    found.idle_calls = (await _calls(on) - calls) * share
    found.idle_cpu = (machine.cpu_seconds(on.relume.pid) - before) * share
    found.reactions = tuple([await _wake(on, paper, f"zero-{number}") for number in range(wakes)])
    await on.relume.kill()
    began = time.monotonic()
    await on.relume.start()
    await _until(lambda: _serves(on))
    found.restart_seconds = time.monotonic() - began
    return found


async def _wake(on: World, paper: PaperKubelet, name: str) -> float:
    """Milliseconds from the request to the pod's existence in a watch."""
    began = time.monotonic()
    answer = await on.chat(name)
    assert answer.status == 200, await answer.text()
    return (paper.seen[name] - began) * 1000


async def _until(wanted: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN):
        while not await wanted():  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(2)


async def _ready(on: World, wanted: int) -> bool:
    return (await _metric(on, "relume_kubernetes_ready")) >= wanted


async def _declared(on: World, wanted: int) -> bool:
    async with on.session.get(f"{on.relume.endpoints['admin']}/v1alpha1/models") as answer:
        return len((await answer.json())["items"]) >= wanted


async def _serves(on: World) -> bool:
    async with on.session.get(f"{on.relume.endpoints['admin']}/readyz") as answer:
        return answer.status == 200


async def _quiet(on: World, seconds: float) -> None:
    """Return once no status was written for so long: what became ready is told."""
    async with asyncio.timeout(WITHIN):
        told, since = await _metric(on, STATUSES), time.monotonic()
        while time.monotonic() - since < seconds:
            await asyncio.sleep(0.5)
            if (now := await _metric(on, STATUSES)) != told:
                told, since = now, time.monotonic()


async def _calls(on: World) -> float:
    return await _metric(on, "relume_kubernetes_api_calls_total")


async def _metric(on: World, name: str) -> float:
    async with on.session.get(f"{on.relume.endpoints['admin']}/metrics") as answer:
        found = re.search(rf"^{name} (\S+)$", await answer.text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"there is no metric {name}")
    return float(found[1])


def _model(on: World, name: str, port: int, least: int) -> Json:
    spec: dict[str, Any] = {
        "engine": {"type": "command", "options": {"command": ["engine", "{port}"]}},
        "resources": {"gpus": 1, "cpu": 0.01, "memory": "64Mi"}, "slots": 8,
        "scaling": {"minReplicas": least, "maxReplicas": REPLICAS, "keepAlive": "1h"},
        "pod": {"image": "relume.test/engine:1", "port": port},
    }  # fmt: skip
    return {"apiVersion": MODELS.api_version, "kind": "Model", "metadata": {"name": name, "namespace": on.namespace},
            "spec": spec}  # fmt: skip


@asynccontextmanager
async def engine(port: int) -> AsyncIterator[None]:
    """One make-believe engine that answers on all loopback addresses."""
    argv = [sys.executable, "-m", "bench.upstream", "--host", "0.0.0.0", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()
        await process.wait()
