"""Kafka logs for tests, and foreign producers that know nothing of relume."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, NoError

from events.adapters.kafka.client import make_admin
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.log import Record, Subscription
from events.names import TOPIC_KINDS
from events.units import Seconds
from tests.support.kafka_broker import READY_WITHIN, Broker

LEAKS = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of tests whose broker goes away: kafka-python leaves the socket of a refused connection to the garbage
collector, which closes it with a warning. `collect_leaks` lets that happen within the test."""


def collect_leaks() -> None:
    """Before the marks of this test end."""
    gc.collect()


def quick_settings(broker: Broker, **changes: object) -> KafkaSettings:
    """Three partitions, and the short patience of a test."""
    settings = KafkaSettings(
        (broker.address,), partitions=3, session_timeout=Seconds(2.0), heartbeat=Seconds(0.3),
        request_timeout=Seconds(2.0),
    )  # fmt: skip
    return replace(settings, **changes)


@asynccontextmanager
async def kafka_log(broker: Broker, **changes: object) -> AsyncIterator[KafkaEventLog]:
    """An open log."""
    async with KafkaEventLog(quick_settings(broker, **changes), SystemClock()) as log:
        yield log


def wipe(broker: Broker) -> None:
    """Delete the topics and all groups, so that the next test finds a new cluster."""
    deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
    while True:
        try:
            admin = make_admin(KafkaSettings((broker.address,)))
            try:
                return _wipe(admin, deadline)
            finally:
                admin.close()
        except KafkaError as error:  # a broker that has just started may still be loading its groups
            if not error.retriable or time.monotonic() > deadline:  # noqa: TID251 - as above
                raise
            time.sleep(0.2)


def _wipe(admin: KafkaAdminClient, deadline: float) -> None:
    if there := sorted(set(TOPIC_KINDS) & set(admin.list_topics())):
        admin.delete_topics(there)
    if groups := [group["group_id"] for group in admin.list_groups()]:
        admin.delete_groups(groups)
    while left := set(there) & set(admin.list_topics()):
        assert time.monotonic() < deadline, f"topics that were deleted are there: {left}"  # noqa: TID251 - as above
        time.sleep(0.02)


def commit(broker: Broker, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Let a consumer group have committed these offsets, by partition. (A broker that has just started may still load
    its groups.)"""
    told = {TopicPartition(topic, number): OffsetAndMetadata(at, "", -1) for number, at in offsets.items()}
    deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
    while True:
        try:
            admin = make_admin(KafkaSettings((broker.address,)))
            try:
                for error in admin.alter_group_offsets(group, told).values():
                    if error is not NoError:  # told a partition, not raised: the coordinator may not be there yet
                        raise error
            finally:
                admin.close()
        except KafkaError:
            if time.monotonic() > deadline:  # noqa: TID251 - as above
                raise
            time.sleep(0.1)
        else:
            return


class Collector:
    """Reads a subscription in a task of its own."""

    def __init__(self, subscription: Subscription) -> None:
        self.records: list[Record] = []
        self.caught_up = asyncio.Event()
        self._more = asyncio.Event()
        self._subscription = subscription
        self._task = asyncio.create_task(self._run())

    async def until(self, ids: set[str], within: float = 60.0) -> None:
        """Wait until all of these have come; AssertionError tells which are missing."""
        try:
            async with asyncio.timeout(within):
                while not ids <= {record.envelope.id for record in self.records}:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            missing = ids - {record.envelope.id for record in self.records}
            raise AssertionError(f"{len(missing)} are missing, such as {sorted(missing)[:5]}") from None

    @property
    def ids(self) -> list[str]:
        """Of all that came, in order."""
        return [record.envelope.id for record in self.records]

    async def close(self) -> None:
        """Stop reading."""
        await self._subscription.close()
        await self._task

    async def _run(self) -> None:
        async for batch in self._subscription:
            self.records += batch.records
            if batch.caught_up:
                self.caught_up.set()
            self._more.set()
