"""relume's own Deployments in a world's namespace, as `relume install` makes them: their controller makes the pods, the
tests' kubelet runs them, and clients reach gateways over a Service that follows its real EndpointSlices."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.kubernetes.packaging import Wanted
from deploy.kubernetes.packaging_apply import Installer
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import DEPLOYMENTS, PODS, Json, Resource
from tests.support.kube_kubelet import COMPONENT
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World
from tests.support.late_service import LateService
from tests.support.running import complaints

SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
PARTS: Final = ("relume-gateway", "relume-autoscaler", "relume-cluster")
OF_A_MODEL: Final = "relume.dev/model"
WITHIN: Final = 120.0
"""Seconds for a rollout: 30 to 40 on a free machine, of which a gateway's hook and drain take 6."""


@dataclass
class Rollout:
    """Deployments of relume's parts on Kafka. Use `rollout`."""

    here: World
    kafka: str
    service: LateService
    _slices: Reflector = field(init=False)
    _pods: Reflector = field(init=False)
    made: Counter[str] = field(default_factory=Counter)
    """How many pods there ever were: of each component, and of models."""
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        namespace = self.here.namespace
        of_gateways = {"labelSelector": "kubernetes.io/service-name=relume"}
        self._slices = Reflector(self.here.api, SLICES.path(namespace), self._endpoints, of_gateways)
        self._pods = Reflector(self.here.api, PODS.path(namespace), self._count)

    async def run(self) -> None:
        """Follow endpoints and pods, until cancelled."""
        await asyncio.gather(self._slices.run(), self._pods.run())

    async def install(self, image: str) -> None:
        """What ``relume install --image`` does: all Deployments change at once."""
        wanted = Wanted(self.here.namespace, image, self.kafka)
        await Installer(self.here.api, "0.1.0", dry=False).everything(wanted, create_namespace=False)

    async def rolled(self, *names: str) -> None:
        """Return once these Deployments are as they should be, and no pod of before is left."""
        for name in names or PARTS:
            await self.here.until(f"{name} is rolled", functools.partial(self._is_rolled, name), WITHIN)

    async def stuck(self, *names: str) -> None:
        """Return once each of these Deployments has made a pod whose image cannot be pulled."""

        async def all_are() -> bool:
            return all(any(map(_waits, self.pods(name.removeprefix("relume-")))) for name in names or PARTS)

        await self.here.until("pods wait for their image", all_are)

    async def _is_rolled(self, name: str) -> bool:
        found = await self.here.api.get(DEPLOYMENTS.path(self.here.namespace, name))
        wanted, status = found["spec"]["replicas"], found.get("status", {})
        counts = {status.get(word, 0) for word in ("replicas", "updatedReplicas", "availableReplicas")}
        return status.get("observedGeneration") == found["metadata"]["generation"] and (
            counts == {wanted} and len(self.pods(name.removeprefix("relume-"))) == wanted
        )

    def pods(self, component: str) -> list[Json]:
        """The pods of one of relume's parts."""
        return [one for one in self._pods.objects.values() if _labels(one).get(COMPONENT) == component]

    @property
    def replicas(self) -> list[Json]:
        """The pods of models."""
        return [one for one in self._pods.objects.values() if OF_A_MODEL in _labels(one)]

    @property
    def ended(self) -> dict[str, list[int]]:
        """Exit codes of the processes of relume's pods that are gone, by the pod's name."""
        return {name: codes for name, codes in self.here.kubelet.codes.items() if name.startswith(PARTS)}

    async def remove(self) -> None:
        """Nobody makes relume's pods any more; those that are there are the world's to end."""
        for name in PARTS:
            await self.here.api.delete(DEPLOYMENTS.path(self.here.namespace, name))

        async def gone() -> bool:
            found = (await self.here.api.get(REPLICA_SETS.path(self.here.namespace)))["items"]
            return all("deletionTimestamp" in one["metadata"] for one in found)

        await self.here.until("ReplicaSets are gone", gone)

    def complaints(self) -> dict[str, str]:
        """What relume's pods said that they should not, by the name of the log."""
        logs = self.here.kubelet.folder.glob("relume-*.log")
        return {log.name: said for log in logs if (said := complaints(log))}

    async def stats(self) -> list[dict[str, Any]]:
        """What each replica's engine counts."""
        found = []
        for pod in self.replicas:
            (port,) = (one["containerPort"] for one in pod["spec"]["containers"][0]["ports"])
            async with self.here.session.get(f"http://{pod['status']['podIP']}:{port}/stats") as answer:
                found.append(await answer.json())
        return found

    def _count(self, _: str, pod: Json | None) -> None:
        if pod is not None and pod["metadata"]["uid"] not in self._seen:
            self._seen.add(pod["metadata"]["uid"])
            labels = _labels(pod)
            self.made["models" if OF_A_MODEL in labels else labels.get(COMPONENT, "")] += 1

    def _endpoints(self, _: str, __: Json | None) -> None:
        """What kube-proxy would send connections to, on whichever of the slices it stands."""
        self.service.set([
            (self.here.kubelet.real_address(address), port["port"])
            for one in self._slices.objects.values() for endpoint in one.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"] for port in one["ports"]
        ])  # fmt: skip


def _waits(pod: Json) -> bool:
    return any("waiting" in one["state"] for one in pod["status"].get("containerStatuses", ()))


def _labels(pod: Json) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("labels", {})
    return found


@asynccontextmanager
async def rollout(here: World, plane: ControlPlane, kafka: str, late: float) -> AsyncIterator[Rollout]:
    """Nothing is installed yet; at the end its Deployments are gone. Endpoints are heard of `late` seconds late."""
    here.kubelet.mounts.kubeconfig = plane.kubeconfig_of
    service = LateService(late)
    await service.start()
    made = Rollout(here, kafka, service)
    following = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await made.remove()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await service.close()
