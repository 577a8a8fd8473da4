"""Parts as processes of their own on a real Kafka, with replicas on a real Kubernetes control plane."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, arguments, pod_model, world
from tests.support.parts import parts_on
from tests.support.parts_traffic import Traffic

pytestmark = [
    pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes", "kafka"), *LEAKS,
]  # fmt: skip


async def uids(here: World) -> set[str]:
    """The pods that are there."""
    return {pod["metadata"]["uid"] for pod in await here.pods()}


async def test_a_cluster_process_that_stood_still_acts_no_more(
    plane: ControlPlane, broker: Broker, tmp_path: Path
) -> None:
    """SIGSTOP for longer than the Lease: another one takes over; the first one, when it goes on, ends by itself, and
    the pods are the second one's."""
    events = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
    async with world(plane, tmp_path) as here, parts_on(tmp_path / "parts", events) as parts:
        reached = arguments(plane, here.namespace)
        gateway, autoscaler = parts.part("gateway"), parts.part("autoscaler")
        first, second = (parts.part("cluster", *reached, name=name) for name in ("first", "second"))
        await asyncio.gather(*(one.start() for one in (gateway, autoscaler, first)))
        await parts.ready(first)
        await second.start()
        await here.apply(pod_model(minReplicas=2, maxReplicas=4))
        await parts.until(gateway, lambda status: status["readyReplicas"] == 2, within=60)
        before = await uids(here)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            await parts.ready(second, within=60)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        assert await first.ended() == 1
        assert "has taken" in first.last_words()
        assert await uids(here) == before
        await here.apply(pod_model(minReplicas=3, maxReplicas=4))
        await parts.until(gateway, lambda status: status["readyReplicas"] == 3, within=60)
        assert before < await uids(here)
        parts.all.remove(first)  # which ended as it should, and not with 0


async def test_a_cluster_process_is_killed_and_another_one_takes_its_pods(
    plane: ControlPlane, broker: Broker, tmp_path: Path
) -> None:
    """kill -9 of the process that has the Lease: every request of a warm model is answered, the one that stood by goes
    on with the same pods, and the model grows again."""
    events = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
    async with world(plane, tmp_path) as here, parts_on(tmp_path / "parts", events) as parts:
        reached = arguments(plane, here.namespace)
        gateway, autoscaler = parts.part("gateway"), parts.part("autoscaler")
        first, second = (parts.part("cluster", *reached, name=name) for name in ("first", "second"))
        await asyncio.gather(*(one.start() for one in (gateway, autoscaler, first)))
        await parts.ready(first)
        await second.start()
        await here.apply(pod_model(minReplicas=1, maxReplicas=2, keepAlive="120s", stableWindow="60s"))
        await parts.until(gateway, lambda status: status["readyReplicas"] == 1, within=60)
        before, traffic = await uids(here), Traffic(parts, gateway)
        await first.kill()
        await traffic.some()
        await parts.ready(second, within=60)
        await traffic.some()
        assert await uids(here) == before, second.last_words()
        more = Traffic(parts, gateway, clients=6)
        await parts.until(gateway, lambda status: status["readyReplicas"] == 2, within=60)
        await asyncio.gather(traffic.stop(), more.stop())
        assert traffic.failed == more.failed == []
        assert len(await uids(here)) == 2
