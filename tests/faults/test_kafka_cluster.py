"""The Kafka log on three brokers of which one dies: nothing acknowledged is lost, nothing is applied twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.envelope import AnyEnvelope
from events.log import EventLog, LogUnavailable, Record, Start, Subscription
from events.names import Topic
from events.units import Seconds
from tests.support.events import Teller
from tests.support.kafka_cluster import NODES, Cluster, cluster_in
from tests.support.kafka_logs import LEAKS, Collector, collect_leaks

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

GATEWAYS = str(Topic.GATEWAYS)
WRITERS, BATCH = 4, 5
PAUSE = 0.01
"""Seconds between a writer's batches: some hundred events a second are enough, and leave the cores to others."""
STALL = 60.0
"""Seconds without an acknowledgement at most; 2 to 4 on a quiet machine."""
APPLIED = 120.0
"""Seconds for the group to have everything: a member that lost its coordinator while it joined begins anew after 40."""


class Writers:
    """Some who append without end, each its own numbers in order, the same events again until the log has them."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._done = asyncio.Event()
        self.acknowledged: set[str] = set()
        self._tasks = [asyncio.create_task(self._write(f"w{number}")) for number in range(WRITERS)]

    async def _write(self, name: str) -> None:
        tell, number = Teller(SystemClock(), f"relume/{name}"), 0
        while not self._done.is_set():
            events = [tell.beat(name, boot=str(number + n)) for n in range(BATCH)]
            number += BATCH
            await self._stubbornly(events)
            self.acknowledged.update(f"{event.source}/{event.id}" for event in events)
            await asyncio.sleep(PAUSE)

    async def _stubbornly(self, events: list[AnyEnvelope]) -> None:
        while True:
            try:
                await self._log.append(events)
            except LogUnavailable:
                await asyncio.sleep(0.1)
            else:
                return

    async def more(self, count: int = 200) -> None:
        """Return when so many more were acknowledged, within the bound."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(STALL):
            while len(self.acknowledged) < wanted:  # noqa: ASYNC110 - it happens in the other tasks
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._done.set()
        await asyncio.gather(*self._tasks)


class Applier:
    """A member of a group that applies each event once, by source and id, and commits after the effect. (What it
    committed for a partition that it no longer held comes again: a group is told at least once.)"""

    def __init__(self, subscription: Subscription) -> None:
        self.applied: set[str] = set()
        self._subscription = subscription
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for batch in self._subscription:
            self.applied.update(_names(batch.records))
            with contextlib.suppress(LogUnavailable):  # these come again
                await self._subscription.commit([record.position for record in batch.records])

    async def close(self) -> None:
        await self._subscription.close()
        await self._task


def _names(records: Sequence[Record]) -> list[str]:
    return [f"{record.envelope.source}/{record.envelope.id}" for record in records]


def settings(cluster: Cluster) -> KafkaSettings:
    return KafkaSettings(
        tuple(cluster.address.split(",")), partitions=3, replication=3, append_timeout=Seconds(5.0),
        session_timeout=Seconds(2.0), heartbeat=Seconds(0.3), request_timeout=Seconds(2.0),
    )  # fmt: skip


async def test_each_broker_is_killed_in_turn(tmp_path: Path) -> None:
    """While four writers append, a follower reads and a group commits: the follower has every acknowledged event once,
    in its writer's order, none is missing from the group, and writing goes on all along."""
    with cluster_in(tmp_path) as cluster:
        async with KafkaEventLog(settings(cluster), SystemClock()) as log:
            follower = Collector(log.subscribe([GATEWAYS], Start("beginning")))
            applier = Applier(log.subscribe([GATEWAYS], Start("beginning"), "appliers"))
            writers = Writers(log)
            await writers.more()
            for node in NODES:
                broker = cluster.brokers[node]
                broker.kill()
                await writers.more()  # two are enough
                await asyncio.to_thread(broker.start)
                await writers.more()
            await writers.stop()
            async with asyncio.timeout(APPLIED):
                while not writers.acknowledged <= set(told := _names(follower.records)):  # noqa: ASYNC110 - another task collects
                    await asyncio.sleep(0.1)
            assert len(told) == len(set(told)), "delivered twice"
            for number in range(WRITERS):
                boots = [int(r.envelope.data.boot) for r in follower.records if r.envelope.data.gateway == f"w{number}"]
                assert boots == sorted(boots)
            async with asyncio.timeout(APPLIED):
                while not writers.acknowledged <= applier.applied:  # noqa: ASYNC110 - another task applies
                    await asyncio.sleep(0.05)
            await applier.close()
            await follower.close()
    collect_leaks()
