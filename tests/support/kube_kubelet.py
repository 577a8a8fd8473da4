"""A kubelet for tests: nodes with GPUs, whose containers are local processes on loopback addresses of their own.

It does what relume and the control plane see of a kubelet: heartbeats, pod status and addresses, readiness, exits with
their reasons, restarts with back-off, deletion with grace. Each pod has an address 127.A.B.N, so that every container
may listen on the same port, as in a cluster. What a test may ask of it stands under "Faults".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import LEASES, NODES, PODS, Json
from deploy.kubernetes.times import micro_time
from events.clock import SystemClock
from events.units import format_instant
from tests.support.kube_logs import LogServer
from tests.support.kube_mounts import Mounts, PodMounts
from tests.support.kube_pods import Address, PodProcess, Told

BEAT_EVERY: Final = 3.0
"""Seconds between heartbeats; the tests' controller manager takes 10 s of silence for a lost node."""
COMPONENT: Final = "app.kubernetes.io/component"
BEHIND_SERVICES: Final = ("gateway", "autoscaler", "cluster", "up")
"""Pods of these components are behind a Service, whose endpoints may not be loopback: they tell another address."""
LEASE_SPACE: Final = "kube-node-lease"


@dataclass
class FakeNode:
    """A node to register: `extended` are resources such as ``nvidia.com/gpu`` by count."""

    name: str
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    extended: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class ProcessKubelet:
    """Some nodes, and the pods that are bound to them. Use `kubelet`."""

    def __init__(self, api: KubeApi, nodes: list[FakeNode], folder: Path) -> None:
        self._api = api
        self.nodes = {node.name: node for node in nodes}
        self.folder = folder
        self._clock = SystemClock()
        self._pods: dict[str, PodProcess] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lives: set[asyncio.Task[Any]] = set()
        """Of pods: never cancelled, since a process that is being started would be lost; they end with the pod."""
        self._lost: set[str] = set()
        self.mounts = Mounts()
        self.codes: dict[str, list[int]] = {}
        """Exit codes of the containers of pods that are gone, by name."""
        self._real: dict[str, str] = {}
        self._logs = LogServer(folder, self._log_of)
        self._reflector = Reflector(api, PODS.path(), self._changed)
        pid = os.getpid()
        self._addresses = itertools.count(2)
        self._prefix = f"127.{pid >> 8 & 0xFE | 1}.{pid & 0xFF}"

    async def start(self) -> None:
        """Register the nodes; returns when they are ready for pods."""
        await self._logs.start()
        for node in self.nodes.values():
            await self._register(node)
        self._spawn(self._beat_all())
        self._spawn(self._reflector.run())
        await self._reflector.synced.wait()

    async def close(self) -> None:
        """End all processes and take the nodes away."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(pod.close() for pod in self._pods.values()))
        await asyncio.gather(*self._lives, return_exceptions=True)
        await self._logs.close()
        for name in self.nodes:
            with contextlib.suppress(ApiError, ApiUnavailable):
                await self._api.delete(NODES.path("", name))

    async def add(self, node: FakeNode) -> None:
        """One more node, as a cluster autoscaler would bring it; returns when it is ready for pods."""
        self.nodes[node.name] = node
        await self._register(node)

    # Faults.

    def pod(self, name: str) -> PodProcess:
        """A pod that runs here, by its name in any namespace."""
        return next(pod for key, pod in self._pods.items() if key.rpartition("/")[2] == name)

    @property
    def pods(self) -> list[str]:
        """Names of the pods that were given to these nodes and are not gone."""
        return sorted(key.rpartition("/")[2] for key in self._pods)

    def lose(self, node: str) -> None:
        """The node is silent from now on: no heartbeat, no status, no deletion; its processes are gone."""
        self._lost.add(node)
        for pod in self._pods.values():
            if pod.node == node:
                pod.vanish()

    async def sicken(self, name: str, resource: str = "nvidia.com/gpu") -> None:
        """The device plugin says that a pod's device is unhealthy: the node has one fewer, and its status says so, as
        kubelets with ResourceHealthStatus write it."""
        pod = self.pod(name)
        node = self.nodes[pod.node]
        path = PODS.path(pod.pod["metadata"]["namespace"], name)
        statuses = (await self._api.get(path))["status"]["containerStatuses"]
        told = {"name": resource, "resources": [{"resourceID": "GPU-sick", "health": "Unhealthy"}]}
        status = {"containerStatuses": [{**statuses[0], "allocatedResourcesStatus": [told]}]}
        await self._api.merge(f"{path}/status", {"status": status})
        node.extended = {**node.extended, resource: node.extended[resource] - 1}
        await self._say_ready(node)

    # Nodes.

    async def _register(self, node: FakeNode) -> None:
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels}}
        body["metadata"] |= {"annotations": dict(node.annotations)}  # type: ignore[operator]  # a dict, just above
        with contextlib.suppress(ApiError):
            await self._api.delete(NODES.path("", node.name))
        await self._api.create(NODES.path(), body)
        await self._say_ready(node)
        # the lifecycle controller lifts its taint once it has seen the node ready
        async with asyncio.timeout(90):
            while (await self._api.get(NODES.path("", node.name)))["spec"].get("taints"):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.1)

    async def _say_ready(self, node: FakeNode) -> None:
        has = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods), "ephemeral-storage": "100Gi"}
        has |= {name: str(count) for name, count in node.extended.items()}
        now = format_instant(self._clock.now())
        kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        conditions = [
            {"type": kind, "status": status, "reason": "Tests", "message": "as the tests want it",
             "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status in kinds.items()
        ]  # fmt: skip
        status = {"capacity": has, "allocatable": has, "conditions": conditions,
                  "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                  "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
                  "nodeInfo": _NODE_INFO}  # fmt: skip
        await self._api.merge(NODES.path("", node.name, "status"), {"status": status})

    async def _beat_all(self) -> None:
        while True:
            alive = [node for name, node in self.nodes.items() if name not in self._lost]
            await asyncio.gather(*map(self._beat, alive))
            await asyncio.sleep(BEAT_EVERY)

    async def _beat(self, node: FakeNode) -> None:
        """That it lives; and that it is well again, when a beat came late and it was taken to be lost."""
        with contextlib.suppress(ApiError, ApiUnavailable):
            await self._renew(node)
            found = await self._api.get(NODES.path("", node.name))
            ready = [one["status"] for one in found["status"].get("conditions", ()) if one["type"] == "Ready"]
            if ready != ["True"] and node.name not in self._lost:
                await self._say_ready(node)

    async def _renew(self, node: FakeNode) -> None:
        now = micro_time(self._clock.now())
        lease = {"apiVersion": LEASES.api_version, "kind": "Lease",
                 "metadata": {"name": node.name, "namespace": LEASE_SPACE},
                 "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 40, "renewTime": now}}  # fmt: skip
        await self._api.apply(LEASES.path(LEASE_SPACE, node.name), lease)

    # Pods.

    def _changed(self, key: str, pod: Json | None) -> None:
        known = self._pods.get(key)
        if known is not None and (pod is None or pod["metadata"]["uid"] != known.uid):
            self.codes[key.rpartition("/")[2]] = known.codes
            self._live(known.close())
            del self._pods[key]
            known = None
        if pod is None:
            return
        node = pod["spec"].get("nodeName", "")
        if node not in self.nodes or node in self._lost or pod["status"].get("phase") in ("Succeeded", "Failed"):
            if known is None and "deletionTimestamp" in pod["metadata"] and node in self.nodes:
                self._spawn(self._finish(pod))
            return
        if known is None:
            if self.mounts.waits(pod):
                if "deletionTimestamp" in pod["metadata"]:
                    self._spawn(self._finish(pod))
                return
            known = self._pods[key] = PodProcess(pod, self._address(pod), self.folder, self._tell, self._mount)
            self._live(known.run())
        known.notes.refresh(pod)
        if "deletionTimestamp" in pod["metadata"]:
            self._spawn(self._end(known, pod))

    async def _end(self, known: PodProcess, pod: Json) -> None:
        await known.terminate(float(pod["metadata"].get("deletionGracePeriodSeconds", 30)))
        if known.node not in self._lost:
            await self._finish(pod)

    async def _finish(self, pod: Json) -> None:
        """The kubelet's part of a deletion: the containers are gone, so may the object be."""
        metadata = pod["metadata"]
        path = PODS.path(metadata["namespace"], metadata["name"])
        await self._insist(lambda: self._api.delete(path, grace=0, uid=metadata["uid"]))

    async def _tell(self, told: Told) -> None:
        """A pod's status, until it is written or the pod is gone."""
        if told.node in self._lost:
            return
        path = PODS.path(told.namespace, told.name, "status")
        await self._insist(lambda: self._api.merge(path, {"status": told.status, "metadata": {"uid": told.uid}}))

    async def _insist(self, call: Any) -> None:
        while True:
            try:
                await call()
            except ApiUnavailable:
                await asyncio.sleep(0.2)  # the API server is away, as kubelets see it too
                continue
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            return

    def _log_of(self, namespace: str, name: str) -> Path | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return None if pod is None else pod.log

    async def _mount(self, pod: Json, folder: Path) -> PodMounts:
        return await self.mounts.of(pod, folder, self._api)

    def _address(self, pod: Json) -> Address:
        number = next(self._addresses) % 253 + 2
        real = f"{self._prefix}.{number}"
        component = pod["metadata"].get("labels", {}).get(COMPONENT, "")
        told = f"10.{self._prefix.partition('.')[2]}.{number}" if component in BEHIND_SERVICES else real
        self._real[told] = real
        return Address(real, told)

    def real_address(self, told: str) -> str:
        """Where the pod listens whose status says this address."""
        return self._real[told]

    def _live(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._lives.add(task)
        task.add_done_callback(self._ended)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._lives.discard(task)
        if not task.cancelled() and task.exception() is not None:
            sys.stderr.write(f"the tests' kubelet failed: {task.exception()!r}\n")


@asynccontextmanager
async def kubelet(api: KubeApi, nodes: list[FakeNode], folder: Path) -> AsyncIterator[ProcessKubelet]:
    """Nodes that run pods, and are gone afterwards."""
    running = ProcessKubelet(api, nodes, folder)
    try:
        await running.start()
        yield running
    finally:
        await running.close()


_NODE_INFO: Final = dict.fromkeys(
    ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
     "kubeProxyVersion", "operatingSystem", "architecture"), "tests",
)  # fmt: skip
