"""Kafka logs for tests, and foreign producers that know nothing of relume."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.log import Record, Subscription
from events.units import Seconds
from tests.support.kafka_broker import Broker

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
