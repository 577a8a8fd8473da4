"""A whole relume that follows a consumer group's lag: wakes, grows, holds while the brokers are away, goes to zero."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tests.support.kafka_broker import Broker, broker_in
from tests.support.kafka_logs import LEAKS, collect_leaks, commit
from tests.support.running import Running, running, simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A cluster of somebody else's."""
    with broker_in(tmp_path / "kafka") as broker:
        yield broker
        broker.revive()
    collect_leaks()


class Orders:
    """A topic of three partitions, and the consumer group `workers` on it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._admin = KafkaAdminClient(bootstrap_servers=broker.address, reconnect_backoff_max_ms=500)
        self._admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
        self._admin.wait_for_topics(["orders"])
        self._producer = KafkaProducer(
            bootstrap_servers=broker.address, reconnect_backoff_max_ms=500,
            linger_ms=30_000, batch_size=1 << 20,  # a call of `produce` is one batch a partition, which `flush` sends
        )  # fmt: skip
        self._sent = [0, 0, 0]

    def produce(self, count: int) -> None:
        for number in range(count):
            self._producer.send("orders", b"{}", partition=number % 3)
            self._sent[number % 3] += 1
        self._producer.flush(60)

    def done(self) -> None:
        """The group has done everything."""
        commit(self._broker, "workers", "orders", dict(enumerate(self._sent)))

    def close(self) -> None:
        self._producer.close(5)
        self._admin.close()


@pytest.fixture
def orders(broker: Broker) -> Iterator[Orders]:
    found = Orders(broker)
    yield found
    found.close()


async def explained(relume: Running) -> str:
    async with relume.session.get(f"{relume.admin}/models/echo/explain") as answer:
        return " ".join((await answer.json())["sentences"])


async def test_a_model_follows_a_lag(broker: Broker, orders: Orders, tmp_path: Path) -> None:
    """Nothing is sent to relume: somebody's topic alone moves the replicas; the partitions are the cap."""
    lag = f"{{topic: orders, group: workers, bootstrapServers: ['{broker.address}'], target: 10, every: 1s}}"
    orders.done()
    async with running(tmp_path, simulated(maxReplicas=4, signals=f"[{{name: orders, kafkaLag: {lag}}}]")) as relume:
        await relume.until(lambda status: status["state"] == "Zero")
        orders.produce(15)
        await relume.until(lambda status: status["readyReplicas"] == 2)
        orders.produce(900)
        await relume.until(lambda status: status["readyReplicas"] == 3)
        told = await explained(relume)
        behind = re.search(r"group workers was (\d+) records behind, in 3 of 3 partitions", told)
        assert behind, told
        assert int(behind[1]) in {315, 615, 915}, "a look may come when one or two partitions have their batch"
        assert "more than 3 partitions can keep busy" in told
        broker.kill()
        await _until_told(relume, "Kafka at")
        assert (await relume.status())["readyReplicas"] == 3, "unknown is not zero"
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(orders.done)
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, within=60)


async def _until_told(relume: Running, said: str) -> None:
    """The measurement that failed stands in the log, with its reason."""
    query = {"topic": "relume.metrics", "from": "beginning"}
    async with asyncio.timeout(60):
        while True:
            async with relume.session.get(f"{relume.admin}/events", params=query) as answer:
                if any(said in line for line in (await answer.text()).splitlines() if "lag.measured" in line):
                    return
            await asyncio.sleep(0.2)
