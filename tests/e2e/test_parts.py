"""The parts of relume as processes of their own on a real Kafka, found through it and their settings alone."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.needs import ROOT
from tests.support.parts import parts_on
from tests.support.parts_traffic import Traffic, warm
from tests.support.running import simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


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


async def test_the_order_of_starting_does_not_matter(broker: Broker, tmp_path: Path) -> None:
    """A gateway alone takes a declaration and holds a request for it; whoever comes later finds both."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, cluster, autoscaler = (parts.part(role) for role in ("gateway", "cluster", "autoscaler"))
        await gateway.start()
        assert (await parts.apply(gateway, simulated()))[0] == 200
        await parts.listed(gateway)
        asked = asyncio.create_task(parts.chat(gateway))
        await parts.until(gateway, lambda status: status["heldRequests"] == 1)
        await cluster.start()
        await parts.ready(cluster)
        await autoscaler.start()
        assert (await asked).status == 200


async def test_sigterm_of_a_gateway_with_held_requests(broker: Broker, tmp_path: Path) -> None:
    """They are told to come again, the running one finishes, and it ends with exit code 0."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, _ = parts.part("gateway"), parts.part("autoscaler")
        cluster = parts.part("cluster", "--drain-bound", "2s")  # at the end no gateway is left to say what is drained
        await asyncio.gather(*(one.start() for one in parts.all))
        slow = "startTime: 100ms, timeToFirstToken: 2s, interTokenLatency: 2ms"
        document = simulated(maxReplicas=1, options=slow, extra="  slots: 1")
        assert (await parts.apply(cluster, document))[0] == 200
        await parts.listed(gateway)
        running = asyncio.create_task(parts.chat(gateway))
        await parts.until(gateway, lambda status: status["runningRequests"] == 1)
        held = [asyncio.create_task(parts.chat(gateway)) for _ in range(3)]
        await parts.until(gateway, lambda status: status["heldRequests"] == 3)
        gateway.terminate()
        answers = await asyncio.gather(*held)
        assert [(one.status, "Retry-After" in one.headers) for one in answers] == [(503, True)] * 3
        assert (await running).status == 200
        assert await gateway.ended() == 0


async def test_the_broker_dies_under_the_parts(broker: Broker, tmp_path: Path) -> None:
    """Requests to a warm model are answered all along; when the broker is back the model grows, without a restart."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, autoscaler, cluster = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        await warm(parts, cluster, gateway)
        traffic = Traffic(parts, gateway)
        await traffic.some()
        broker.kill()
        await traffic.some(100)
        await asyncio.to_thread(broker.start)
        more = Traffic(parts, gateway, clients=6)
        await parts.until(cluster, lambda status: status["readyReplicas"] == 2, within=60)
        await asyncio.gather(traffic.stop(), more.stop())
        assert traffic.failed == more.failed == []
        assert autoscaler.runs


async def test_the_example_script(broker: Broker, tmp_path: Path) -> None:
    """docs/examples/parts.sh: three processes with the settings of the environment; SIGTERM ends all in order."""
    document = tmp_path / "model.yaml"
    document.write_text(simulated())
    zeros = dict.fromkeys(("CLUSTER_ADMIN_PORT", "AUTOSCALER_ADMIN_PORT", "GATEWAY_ADMIN_PORT", "GATEWAY_PORT"), "0")
    environment = os.environ | zeros | {
        "RELUME_EVENTS": f"kafka://{broker.address}", "RELUME_KAFKA_PARTITIONS": "3", "RELUME_DATA_DIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        script = await asyncio.create_subprocess_exec(
            str(ROOT / "docs/examples/parts.sh"), "-f", str(document), env=environment, stdout=log, stderr=log
        )
    said = [tmp_path / "endpoints.json", tmp_path / "gateway/endpoints.json", tmp_path / "autoscaler/endpoints.json"]
    try:
        async with asyncio.timeout(90):
            while not all(file.exists() for file in said):
                assert script.returncode is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.05)
        where = json.loads(said[1].read_text())["gateway"]
        asked = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            while True:
                async with session.post(f"{where}/v1/chat/completions", json=asked) as answer:
                    if answer.status == 200:
                        break
                    assert answer.status == 404, await answer.text()  # it is not declared yet
    finally:
        script.terminate()
        code = await asyncio.wait_for(script.wait(), 60)
    assert code == 0, (tmp_path / "log").read_text()
    assert not any(file.exists() for file in said)
