"""The parts of relume as processes of their own on a real Kafka, found through it and their settings alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import LEAKS, collect_leaks, wipe
from tests.support.parts import parts_on
from tests.support.running import simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

WARM = "startTime: 200ms, timeToFirstToken: 20ms, interTokenLatency: 2ms"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """The broker, without topics."""
    broker = shared_broker()
    wipe(broker)
    yield broker
    broker.revive()
    collect_leaks()


def on(broker: Broker) -> tuple[str, ...]:
    return ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")


async def test_the_main_loop_over_three_processes(broker: Broker, tmp_path: Path) -> None:
    """All three start at once on an empty Kafka. A request to zero is held, woken for, answered; then back to zero."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, autoscaler, cluster = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        assert (await parts.apply(cluster, simulated()))[0] == 200
        await parts.listed(gateway)
        assert (await parts.chat(gateway)).status == 200
        for one in parts.all:  # each knows, by following the log alone
            await parts.until(one, lambda status: status["readyReplicas"] == 1)
        explained = await parts.ask(gateway, "/v1alpha1/models/echo/explain")
        assert "sentences" in explained, explained
        await parts.until(autoscaler, lambda status: status["state"] == "Zero" and status["replicas"] == 0)
