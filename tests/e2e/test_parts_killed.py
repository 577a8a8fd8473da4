"""kill -9 of parts of relume while requests flow, on a real Kafka: gateways, autoscalers, clusters and a standby."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.kafka_broker import Broker, free_port
from tests.support.kafka_logs import LEAKS
from tests.support.parts import PartProcess, Parts, parts_on
from tests.support.parts_traffic import WARM, Traffic, pids, warm
from tests.support.running import simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

RECOVERY = 30.0
"""Seconds until a model grows after a part was killed and started again; a few on a quiet machine."""


def on(broker: Broker) -> tuple[str, ...]:
    return ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")


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


async def test_a_cluster_that_stood_still_goes_on_as_a_zombie(broker: Broker, tmp_path: Path) -> None:
    """SIGSTOP: the one on another node leads, and starts the model there. SIGCONT: the first drains its own, and all
    that it tells of them meanwhile is refused; the last word in the log is the one of who leads."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, _ = parts.part("gateway"), parts.part("autoscaler")
        first = parts.part("cluster", "--node-name", "a")
        await asyncio.gather(*(one.start() for one in parts.all))
        await parts.ready(first)
        await warm(parts, first, gateway)
        before = await pids(parts, gateway)
        second = parts.part("cluster", "--node-name", "b", name="second")
        await second.start()
        os.kill(first.pid, signal.SIGSTOP)
        await parts.ready(second, within=60)
        async with asyncio.timeout(60):
            while not (after := await pids(parts, gateway)) or after & before:  # noqa: ASYNC110 - elsewhere it happens
                await asyncio.sleep(0.05)
        os.kill(first.pid, signal.SIGCONT)
        await first.ended(within=60)
        assert await pids(parts, gateway) == after
        assert (await parts.chat(gateway)).status == 200
        async with asyncio.timeout(30):
            while (nodes := await told_by(parts, gateway))[-1] != "b":  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        assert "a" in nodes[nodes.index("b") :], "it told nothing late"


async def told_by(parts: Parts, gateway: PartProcess) -> list[str]:
    """The node of each state with a replica, in the order of the log. Epochs go up from node to node."""
    told = [one for one in await parts.events(gateway, "replicas") if one["data"]["replicas"]]
    pairs = [(one["data"]["replicas"][0]["node"], int(one["epoch"])) for one in told]
    assert len({node for node, _ in pairs}) == len(set(pairs))
    return [node for node, _ in pairs]


async def test_two_of_three_autoscalers_die_in_a_spike(broker: Broker, tmp_path: Path) -> None:
    """The third takes over their models. Each model grows; none shrinks for lost history, none starts a replica twice,
    and no request is lost."""
    async with parts_on(tmp_path, on(broker)) as parts:
        gateway, cluster = parts.part("gateway"), parts.part("cluster")
        scalers = [parts.part("autoscaler", name=f"scaler-{number}") for number in range(3)]
        await asyncio.gather(*(one.start() for one in parts.all))
        await asyncio.gather(*(parts.ready(one) for one in (cluster, *scalers)))
        names = [f"m{number}" for number in range(5)]
        one = [simulated(name, keepAlive="120s", maxReplicas=2, options=WARM, extra="  slots: 2") for name in names]
        assert (await parts.apply(cluster, "\n---\n".join(one)))[0] == 200
        for name in names:
            await parts.listed(gateway, name)
            assert (await parts.chat(gateway, name)).status == 200
        spike = [Traffic(parts, gateway, 4, name) for name in names]
        await asyncio.gather(*(scaler.kill() for scaler in scalers[:2]))
        for name in names:
            await parts.until(cluster, lambda status: status["readyReplicas"] == 2, name, within=60)
        await asyncio.gather(*(traffic.stop() for traffic in spike))
        assert [traffic.failed for traffic in spike] == [[]] * len(names)
        wishes: dict[str, list[int]] = {name: [] for name in names}
        for event in await parts.events(cluster, "decisions"):
            if event["type"].startswith("relume.wish"):
                wishes[event["data"]["model"]].append(event["data"]["replicas"])
        assert all(told == sorted(told) for told in wishes.values()), wishes
        starts = [event["data"]["replica"] for event in await parts.events(cluster, "phases")
                  if event["type"].startswith("relume.replica.phase") and event["data"]["state"] == "Starting"
                  and event["data"].get("phase") == "spawn"]  # fmt: skip
        assert sorted(starts) == sorted(set(starts)), "started twice"
        assert len(starts) == 2 * len(names)
