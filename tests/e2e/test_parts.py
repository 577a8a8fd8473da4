"""The parts of relume as processes of their own on a real Kafka, found through it and their settings alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.kafka_broker import Broker, free_port, shared_broker
from tests.support.kafka_logs import LEAKS, collect_leaks, wipe
from tests.support.parts import PartProcess, Parts, parts_on
from tests.support.running import simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

RECOVERY = 30.0
"""Seconds until a model grows after a part was killed and started again; a few on a quiet machine."""
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


class Traffic:
    """Clients that ask one after the other as long as they are told to. `failed`: what was not answered with 200."""

    def __init__(self, parts: Parts, gateway: PartProcess, clients: int = 2) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._stop = asyncio.Event()
        self._parts, self._gateway = parts, gateway
        self._clients = [asyncio.create_task(self._client()) for _ in range(clients)]

    async def _client(self) -> None:
        while not self._stop.is_set():
            try:
                answer = await self._parts.chat(self._gateway)
            except aiohttp.ClientError as error:
                self.failed.append(repr(error))
                await asyncio.sleep(0.05)
                continue
            self.answered += answer.status == 200
            if answer.status != 200:
                self.failed.append(f"{answer.status}: {(await answer.text())[:200]}")
                await asyncio.sleep(0.05)

    async def some(self, more: int = 40) -> None:
        """Return when so many more were answered."""
        wanted = self.answered + more
        async with asyncio.timeout(40):
            while self.answered < wanted:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._clients)


async def warm(parts: Parts, declaring: PartProcess, gateway: PartProcess) -> None:
    """A warm model that stays warm, and grows with more than two requests a replica at a time."""
    document = simulated(keepAlive="120s", maxReplicas=2, options=WARM, extra="  slots: 2")
    assert (await parts.apply(declaring, document))[0] == 200
    await parts.listed(gateway)
    assert (await parts.chat(gateway)).status == 200


async def pids(parts: Parts, part: PartProcess) -> set[int]:
    """The engines that serve, as the log says."""
    items = (await parts.ask(part, "/v1alpha1/replicas"))["items"]
    return {one["status"]["pid"] for one in items if one["status"]["state"] == "Ready"}


async def test_control_processes_die_under_traffic(broker: Broker, tmp_path: Path) -> None:
    """kill -9 of the autoscaler, of the cluster, of both: no request of a warm model is lost. What comes back takes up
    what it finds, the replica included, and the model grows again within the bound of docs/how-to/kafka.md."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, autoscaler, cluster = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        await warm(parts, cluster, gateway)
        traffic = Traffic(parts, gateway)
        before = await pids(parts, gateway)
        for killed in ((autoscaler,), (cluster,), (autoscaler, cluster)):
            await asyncio.gather(*(one.kill() for one in killed))
            await traffic.some()
            await asyncio.gather(*(one.start() for one in killed))
            await asyncio.gather(*(parts.ready(one) for one in killed))
            await traffic.some()
            assert await pids(parts, gateway) == before, cluster.last_words()
        more = Traffic(parts, gateway, clients=6)
        await parts.until(gateway, lambda status: status["readyReplicas"] == 2, within=RECOVERY)
        await asyncio.gather(traffic.stop(), more.stop())
        assert traffic.failed == more.failed == []


async def test_a_gateway_dies_and_comes_back(broker: Broker, tmp_path: Path) -> None:
    """With it go its requests, and no others: as soon as it listens again it serves what is warm, with everything else
    dead, too."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, autoscaler, cluster = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        await warm(parts, cluster, gateway)
        await asyncio.gather(autoscaler.kill(), cluster.kill(), gateway.kill())
        await gateway.start()
        for _ in range(20):
            assert (await parts.chat(gateway)).status == 200
        await asyncio.gather(autoscaler.start(), cluster.start())
        await parts.ready(cluster)


async def test_a_standby_takes_over(broker: Broker, tmp_path: Path) -> None:
    """A second cluster on the same data folder waits; when the first is killed it goes on with its replicas."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, _, first = (parts.part(role) for role in ("gateway", "autoscaler", "cluster"))
        await asyncio.gather(*(one.start() for one in parts.all))
        await warm(parts, first, gateway)
        before = await pids(parts, gateway)
        port = str(free_port())
        second = parts.part("cluster", "--admin-port", port, "--data-dir", str(first.data), name="second")
        await second.start(wait=False)
        second.endpoints = {"admin": f"http://127.0.0.1:{port}"}
        async with asyncio.timeout(40):
            while "stands by" not in second.last_words():  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.05)
        told = await parts.ask(second, "/readyz")
        assert not told["ready"]
        assert "stands by" in told["missing"][0]
        traffic = Traffic(parts, gateway)
        await traffic.some()
        await first.kill()
        await parts.ready(second, within=RECOVERY)
        more = Traffic(parts, gateway, clients=6)
        await parts.until(gateway, lambda status: status["readyReplicas"] == 2, within=RECOVERY)
        await asyncio.gather(traffic.stop(), more.stop())
        assert traffic.failed == more.failed == []
        assert before <= await pids(parts, gateway)


async def test_a_standby_on_another_node_takes_over(broker: Broker, tmp_path: Path) -> None:
    """It leads once the first is out of its group. What ran on the first's node is started on its own; requests wait
    for it that long."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, _ = parts.part("gateway"), parts.part("autoscaler")
        first = parts.part("cluster", "--node-name", "a", "--adopt-within", "0s")
        await asyncio.gather(*(one.start() for one in parts.all))
        await parts.ready(first)
        await warm(parts, first, gateway)
        before = await pids(parts, gateway)
        second = parts.part("cluster", "--node-name", "b", name="second")
        await second.start()
        assert not (await parts.ask(second, "/readyz"))["ready"]
        await first.kill()
        await parts.ready(second, within=60)
        async with asyncio.timeout(60):
            while not (after := await pids(parts, gateway)) or after & before:  # noqa: ASYNC110 - elsewhere it happens
                await asyncio.sleep(0.05)
        assert (await parts.chat(gateway)).status == 200


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
