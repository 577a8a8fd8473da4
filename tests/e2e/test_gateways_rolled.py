"""Gateways are replaced one by one under load, as a Deployment does it: started as their manifest says, with its hook
and grace, behind a Service that hears of each change two seconds late, on a real Kafka."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest

from deploy.compose.topics import create
from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.packaging import Wanted, objects
from deploy.kubernetes.resources import Json
from deploy.settings.settings import Settings
from tests.support.careful_clients import Clients, shown
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.kube_mounts import Mounts, PodMounts
from tests.support.kube_pods import Address, PodProcess, Told
from tests.support.late_service import LateService
from tests.support.parts import parts_on
from tests.support.running import simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

LATE: Final = 2.0
"""Seconds; less than the manifest's preStop, which is there for that."""
MODEL: Final = simulated(
    minReplicas=2, maxReplicas=3, keepAlive="120s", stableWindow="60s", extra="  slots: 2",
    options="startTime: 300ms, timeToFirstToken: 20ms, interTokenLatency: 25ms",
)  # fmt: skip
WITHIN: Final = 90.0


class Secrets:
    """An API server that has secrets."""

    async def get(self, path: str) -> Json:
        key = "token" if path.endswith("admin") else "secret"
        return {"data": {key: base64.b64encode(b"0123456789abcdef" * 2).decode()}}


class Gateways:
    """Pods of the manifest's Deployment of gateways, behind a Service."""

    def __init__(self, kafka: str, folder: Path, service: LateService) -> None:
        wanted = objects(Wanted("models", "relume.test/relume:1", kafka))
        (deployment,) = [
            one for one in wanted if one["metadata"]["name"] == "relume-gateway" and one["kind"] == "Deployment"
        ]
        self._template: Json = deployment["spec"]["template"]
        self._folder = folder
        self._service = service
        self._ready: dict[str, asyncio.Event] = {}
        self._lives: list[asyncio.Task[None]] = []
        self._ending: list[asyncio.Task[None]] = []
        self.pods: list[PodProcess] = []
        self.gone: list[PodProcess] = []

    async def add(self) -> None:
        """One more; returns when it is ready, and is told to the Service."""
        number = len(self.pods) + len(self.gone) + 2
        name = f"relume-gateway-{number}"
        metadata = {"name": name, "namespace": "models", "uid": f"{number:08}", "labels": {}}
        body = {"metadata": metadata, "spec": {**self._template["spec"], "nodeName": "node"}}
        ready = self._ready[name] = asyncio.Event()
        pod = PodProcess(body, Address(f"127.3.9.{number}", f"10.3.9.{number}"), self._folder, self._tell, self._mount)
        self.pods.append(pod)
        self._lives.append(asyncio.create_task(pod.run()))
        async with asyncio.timeout(WITHIN):
            await ready.wait()
        self._say()

    def end_first(self) -> None:
        """The oldest is deleted: from now on its hook runs, then it gets SIGTERM."""
        pod = self.pods.pop(0)
        self.gone.append(pod)
        self._say()
        grace = float(self._template["spec"]["terminationGracePeriodSeconds"])
        self._ending.append(asyncio.create_task(pod.terminate(grace)))

    async def ended(self) -> None:
        """Return when those that were deleted are gone."""
        await asyncio.gather(*self._ending)

    async def close(self) -> None:
        await asyncio.gather(*(pod.close() for pod in (*self.pods, *self.gone)))
        await asyncio.gather(*self._lives)

    def _say(self) -> None:
        self._service.set([(pod.address, 8080) for pod in self.pods])

    async def _tell(self, told: Told) -> None:
        statuses: list[dict[str, Any]] = list(told.status.get("containerStatuses", ()))
        if statuses and statuses[0]["ready"]:
            self._ready[told.name].set()

    async def _mount(self, pod: Json, folder: Path) -> PodMounts:
        mounts = Mounts(kubeconfig=lambda account, token: folder / f"{account}-{token}")  # gateways have no account
        return await mounts.of(pod, folder, cast("KubeApi", Secrets()))


@asynccontextmanager
async def gateways(kafka: str, folder: Path) -> AsyncIterator[tuple[Gateways, LateService]]:
    """Two, ready, behind a Service."""
    folder.mkdir()  # noqa: ASYNC240 - the test's own folder
    service = LateService(LATE)
    await service.start()
    made = Gateways(kafka, folder, service)
    try:
        await made.add()
        await made.add()
        yield made, service
    finally:
        await made.close()
        await service.close()


async def test_gateways_are_replaced_without_a_lost_request(broker: Broker, tmp_path: Path) -> None:
    """More clients than slots, so that some always wait: with new connections, with kept ones, with streams that run
    while their gateway goes. All are answered with 200, whole; no slot is sold twice; each gateway ends in order."""
    await asyncio.to_thread(create, Settings(kafka_partitions=2), (broker.address,))  # 12 take longer than the rest
    events = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "2")
    async with (
        gateways(broker.address, tmp_path / "pods") as (on, service),
        parts_on(tmp_path / "parts", events) as parts,
    ):
        autoscaler, cluster = parts.part("autoscaler"), parts.part("cluster")
        await asyncio.gather(autoscaler.start(), cluster.start())
        assert (await parts.apply(cluster, MODEL))[0] == 200
        await parts.until(autoscaler, lambda status: status["readyReplicas"] >= 2, within=WITHIN)
        await asyncio.sleep(LATE)  # by then the Service has heard of both
        clients = Clients(service.url, "echo")
        clients.start({"fresh": 3, "kept": 3, "streams": 3})
        await clients.some()
        for _ in range(2):
            await on.add()
            on.end_first()
            await clients.some()
        await on.ended()
        await clients.some()
        await clients.stop()
        print(f"answered {dict(clients.answered)}, the slowest in {clients.slowest:.2f} s")  # noqa: T201 - a measurement
        assert clients.failed == [], shown(clients.failed)
        assert service.refused == 0
        assert [pod.codes for pod in on.gone] == [[0], [0]]
        for item in (await parts.ask(cluster, "/v1alpha1/replicas"))["items"]:
            async with parts.session.get(f"http://{item['status']['address']}/stats") as answer:
                stats = await answer.json()
            assert (stats["oversold"], stats["duplicates"]) == (0, 0)
