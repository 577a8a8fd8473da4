"""Lag of consumer groups on real brokers: every case, several clusters, brokers that go away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from autoscaler.core.lag import LagWatch, Look, Offsets
from autoscaler.core.policy import LagPolicy
from autoscaler.ports import LagUnknown
from deploy.compose.lags import KafkaLags
from deploy.settings.settings import Settings, SettingsRefused
from events.clock import SystemClock
from tests.autoscaler.test_lag import POLICY
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import LEAKS, collect_leaks, commit, wipe
from tests.support.kafka_secured import secured_broker
from tests.support.stalls import watched

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

ORDERS = replace(POLICY, topic="orders", group="workers")


class Cluster:
    """The broker with a topic of three partitions, a producer and commits of a group."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._admin = KafkaAdminClient(bootstrap_servers=broker.address, reconnect_backoff_max_ms=500)
        if "orders" in self._admin.list_topics():
            self._admin.delete_topics(["orders"])
            while "orders" in self._admin.list_topics():
                time.sleep(0.02)
        self._admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
        self._admin.wait_for_topics(["orders"])
        self._producer = KafkaProducer(bootstrap_servers=broker.address)

    def produce(self, partition: int, count: int) -> None:
        for _ in range(count):
            self._producer.send("orders", b"{}", partition=partition)
        self._producer.flush(20)

    def commit(self, **offsets: int) -> None:
        """As ``p0=7``."""
        commit(self.broker, "workers", "orders", {int(name[1:]): at for name, at in offsets.items()})

    def forget(self, before: int) -> None:
        """Records of partition 0 before this offset are gone, as after retention."""
        self._admin.delete_records({TopicPartition("orders", 0): before})

    def close(self) -> None:
        self._producer.close(5)
        self._admin.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    broker = shared_broker()
    wipe(broker)
    found = Cluster(broker)
    yield found
    broker.revive()
    found.close()
    collect_leaks()


@pytest.fixture
def lags(cluster: Cluster) -> Iterator[KafkaLags]:
    made = KafkaLags(settings(cluster.broker), SystemClock())
    yield made
    made.close()


def settings(broker: Broker, **more: Any) -> Settings:
    return Settings(events=f"kafka://{broker.address}", **more)


async def looked(lags: KafkaLags, policy: LagPolicy = ORDERS) -> Look:
    """A look, once it works: a broker that has just started may still load its groups."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await lags.look(policy)
            except LagUnknown as error:
                if "there is no" in str(error) or "nothing" in str(error):
                    raise
                await asyncio.sleep(0.1)


async def test_where_a_group_stands(cluster: Cluster, lags: KafkaLags) -> None:
    """Committed, not committed, deleted history; only some partitions; all topics of the group."""
    cluster.produce(0, 10)
    cluster.produce(1, 4)
    nothing = await looked(lags)
    assert [one.committed for one in nothing.offsets.values()] == [None, None, None]
    cluster.commit(p0=3)
    assert (await looked(lags)).offsets == {
        ("orders", 0): Offsets(0, 10, 3), ("orders", 1): Offsets(0, 4, None), ("orders", 2): Offsets(0, 0, None),
    }  # fmt: skip
    cluster.forget(6)
    assert (await looked(lags)).offsets["orders", 0] == Offsets(6, 10, 3)
    assert list((await looked(lags, replace(ORDERS, partitions=(1,)))).offsets) == [("orders", 1)]
    assert len((await looked(lags, replace(ORDERS, topic=""))).offsets) == 3
    measured = LagWatch().measure("m", "s", replace(ORDERS, from_earliest=True), await looked(lags))
    assert (measured.lag, measured.with_lag, measured.partitions) == (8, 2, 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": "nowhere"}, "there is no topic nowhere"),
        ({"topic": "", "group": "unborn"}, "group unborn has committed nothing yet"),
        ({"partitions": (7,)}, "has no partition 7"),
        ({"cluster": "mars"}, "there is no cluster mars"),
        ({"servers": ("127.0.0.1:1",)}, "127.0.0.1:1"),
    ],
)
async def test_what_cannot_be_looked_at(lags: KafkaLags, changes: dict[str, Any], said: str) -> None:
    """A sentence that says what is wrong; within the bound."""
    if "servers" not in changes and "cluster" not in changes:
        await looked(lags)
    async with asyncio.timeout(30):
        with pytest.raises(LagUnknown, match=said):
            await lags.look(replace(ORDERS, **changes))


async def test_brokers_that_die_and_come_back(cluster: Cluster, lags: KafkaLags) -> None:
    """Unknown while they are away, never zero; the event loop is not held up; then known again."""
    cluster.produce(0, 5)
    assert (await looked(lags)).offsets["orders", 0].end == 5
    cluster.broker.kill()
    async with watched() as watch:
        with pytest.raises(LagUnknown):
            await lags.look(ORDERS)
    assert watch.longest < 0.1
    await asyncio.to_thread(cluster.broker.start)
    assert (await looked(lags)).offsets["orders", 0].end == 5


async def test_clusters_by_name(cluster: Cluster, tmp_path: Path) -> None:
    """The file says how each is reached; the event log need not be on Kafka."""
    file = tmp_path / "clusters.yaml"
    file.write_text(f"orders:\n  servers: ['{cluster.broker.address}']\n", encoding="utf-8")
    lags = KafkaLags(Settings(kafka_clusters=file), SystemClock())
    assert len((await looked(lags, replace(ORDERS, cluster="orders"))).offsets) == 3
    assert len((await looked(lags, replace(ORDERS, servers=(cluster.broker.address,)))).offsets) == 3
    with pytest.raises(LagUnknown, match="not on Kafka"):
        await lags.look(ORDERS)
    lags.close()


async def test_a_cluster_that_wants_a_password(tmp_path: Path) -> None:
    """TLS and SASL by the file's word; a wrong password is unknown, with a reason and without the password."""
    with secured_broker(tmp_path) as secured:
        for word in ("right", "hush-hush"):
            (tmp_path / word).write_text(word + "\n", encoding="utf-8")
        named = "".join(
            f"{word}: {{servers: ['{secured.sasl}'], security: sasl_ssl, tlsCa: {secured.ca}, username: me, "
            f"saslMechanism: SCRAM-SHA-512, passwordFile: {tmp_path / word}}}\n"
            for word in ("right", "hush-hush")
        )
        named += (
            f"certified: {{servers: ['{secured.mutual}'], security: ssl, tlsCa: {secured.ca}, "
            f"tlsCert: {secured.certificate}, tlsKey: {secured.key}}}\n"
        )
        file = tmp_path / "clusters.yaml"
        file.write_text(named, encoding="utf-8")
        lags = KafkaLags(Settings(kafka_clusters=file), SystemClock())
        for cluster in ("right", "certified"):
            with pytest.raises(LagUnknown, match="there is no topic orders"):
                await looked(lags, replace(ORDERS, cluster=cluster))
        with pytest.raises(LagUnknown) as caught:
            await lags.look(replace(ORDERS, cluster="hush-hush"))
        assert "is the password right?" in str(caught.value)
        assert "hush" not in str(caught.value)
        lags.close()
    collect_leaks()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders: {servers: []}", "orders.servers"),
        ("orders: {servers: [b]}", "orders.servers"),
        ("Orders!: {servers: ['b:1']}", "Orders!"),
        ("orders: {servers: ['b:1'], security: sasl_ssl}", "needs a mechanism"),
        ("orders: {servers: ['b:1'], security: sasl_ssl, saslMechanism: PLAIN, username: u, passwordFile: /no/such}",
         "/no/such"),
        ("orders: {servers: ['b:1'], pasword: x}", "orders.pasword"),
        ("- a", "valid dictionary"),
        ("a: [", "cannot be read"),
    ],
)  # fmt: skip
def test_a_file_of_clusters_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """Refused at the start, with the file and the place in it."""
    file = tmp_path / "clusters.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsRefused, match=said):
        KafkaLags(Settings(kafka_clusters=file), SystemClock())
