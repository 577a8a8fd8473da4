"""relume's own Deployments, rolled by the real Deployment controller while clients ask and a model grows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from deploy.compose.topics import create
from deploy.settings.settings import Settings
from tests.support.careful_clients import Clients, shown
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_rollout import Rollout, rollout
from tests.support.kube_world import World, pod_model, world

pytestmark = [
    pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes", "kafka"), *LEAKS,
]  # fmt: skip

LATE: Final = 2.0
"""Seconds; less than the gateways' preStop, which is there for that."""
OPTIONS: Final = "startTime: 300ms, timeToFirstToken: 300ms, interTokenLatency: 25ms"
"""An answer takes a third of a second, a stream one and a third."""


def model(least: int, most: int) -> str:
    """A model that more clients ask than two of its replicas have slots for."""
    return pod_model(
        extra="  slots: 2", options=OPTIONS, minReplicas=least, maxReplicas=most, keepAlive="120s", stableWindow="60s"
    )


async def ready(here: World, on: Rollout, count: int) -> set[str]:
    """The uids of the model's pods, once so many are ready and no other one is there."""

    async def are() -> bool:
        truth = [one["status"] for pod in on.replicas for one in pod["status"].get("conditions", ())
                 if one["type"] == "Ready"]  # fmt: skip
        return truth == ["True"] * count == ["True"] * len(on.replicas)

    await here.until(f"{count} replicas are ready", are, 90.0)
    return {pod["metadata"]["uid"] for pod in on.replicas}


async def test_an_upgrade_under_load(plane: ControlPlane, broker: Broker, tmp_path: Path) -> None:
    """All Deployments get another image at once, under clients with new connections, kept ones and streams: first one
    that cannot be pulled, which replaces nobody, then a good one, while the model is allowed one replica more and needs
    it. Nobody is refused; each part is replaced pod by pod and ends in order; the model gets that one pod, none other
    of its pods is made or ended, and no slot is sold twice; who came after scales it on."""
    await asyncio.to_thread(create, Settings(kafka_partitions=2), (broker.address,))  # 12 take longer than the rest
    async with world(plane, tmp_path) as here, rollout(here, plane, broker.address, LATE) as on:
        await on.install("relume.test/relume:1")
        await here.apply(model(2, 2))
        await on.rolled()
        before = await ready(here, on, 2)
        await asyncio.sleep(LATE)  # by then the Service has heard of both gateways
        clients = Clients(on.service.url, "echo")
        clients.start({"fresh": 3, "kept": 3, "streams": 3})
        await clients.some()
        await on.install("missing.test/relume:2")
        await on.stuck()
        await clients.some()
        assert on.ended == {}
        await on.install("relume.test/relume:2")
        await here.apply(model(2, 3))
        await on.rolled()
        await clients.some()
        grown = await ready(here, on, 3)
        assert before < grown
        await here.apply(model(4, 4))
        assert grown < await ready(here, on, 4)
        await clients.some()
        await clients.stop()
        print(f"answered {dict(clients.answered)}, the slowest in {clients.slowest:.2f} s; {dict(on.made)}")  # noqa: T201 - a measurement
        assert clients.failed == [], shown(clients.failed)
        assert on.service.refused == 0
        assert on.made == dict.fromkeys(("gateway", "autoscaler", "cluster"), 5) | {"models": 4}
        assert sorted(on.ended.values()) == [[]] * 3 + [[0]] * 6, on.ended
        assert {(one["oversold"], one["duplicates"]) for one in await on.stats()} == {(0, 0)}
        assert on.complaints() == {}
