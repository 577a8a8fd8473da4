"""Reading what stands in the log now: a consumer in a thread of its own, a page at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from events.adapters.kafka.client import Admin, make_consumer, told
from events.adapters.kafka.opening import Opener, Reading
from events.adapters.kafka.places import offsets_at, spans, topic_places
from events.adapters.kafka.scan import Scan
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import RawRecord
from events.adapters.store import Place
from events.clock import SystemClock
from events.log import LogClosed, LogUnavailable, Query, Record
from events.units import Instant

T = TypeVar("T")

logger = logging.getLogger(__name__)

PAGE: Final = 256
"""Most records of one step."""

_TURN: Final = 200  # milliseconds of one poll


@dataclass(frozen=True, slots=True)
class _Page:
    """Records in order, and where to go on."""

    records: tuple[Record, ...]
    next_offset: int


class Reader:
    """Called on the loop's thread; waits for its own."""

    def __init__(self, settings: KafkaSettings, admin: Admin, partitions: Mapping[str, int]) -> None:
        self._settings = settings
        self._admin = admin
        self._partitions = partitions
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relume-kafka-reader")
        self._consumer: KafkaConsumer | None = None
        self._at: tuple[Place, int] | None = None
        self._clock = SystemClock()

    async def read(self, query: Query, repeated: Callable[[], None]) -> AsyncIterator[Record]:
        """See `events.log.EventLog.read`."""
        topic, left = str(query.topic), query.limit
        places = topic_places([topic], self._partitions)
        if query.partition is not None:
            places = [place for place in places if place[1] == query.partition]
        found, late = await self._admin.call(lambda client: _spans(client, places, query.from_time))
        opener = Reading(self._partitions, repeated)
        for place in places:
            begin, end = found[place]
            offset = max(begin, query.from_offset or 0, late.get(place, begin if query.from_time is None else end))
            pages = self._newest if query.newest_per_key else self._follow
            async for page in pages(place, (begin, offset, end), opener):
                for record in page:
                    if left == 0:
                        return
                    yield record
                    left = None if left is None else left - 1
            if left == 0:
                return

    def close(self) -> None:
        """Waits for nothing."""
        try:
            self._thread.submit(self._drop)
        except RuntimeError:  # closed before
            return
        self._thread.shutdown(wait=False)

    async def _follow(
        self, place: Place, span: tuple[int, int, int], opener: Reading
    ) -> AsyncIterator[tuple[Record, ...]]:
        _, offset, end = span
        while offset < end:
            page = await self._call(partial(self._page, place=place, span=(offset, end), opener=opener))
            yield page.records
            offset = page.next_offset

    async def _newest(
        self, place: Place, span: tuple[int, int, int], opener: Reading
    ) -> AsyncIterator[tuple[Record, ...]]:
        """Of the whole place; then those from the offset on."""
        begin, offset, end = span
        records = await self._call(lambda consumer: self._scan(consumer, place, (begin, end), opener))
        yield tuple(record for record in records if record.position.offset >= offset)

    # In the thread.

    def _page(self, consumer: KafkaConsumer, place: Place, span: tuple[int, int], opener: Opener) -> _Page:
        raws, next_offset = self._poll(consumer, place, span)
        opened = (opener.open(raw) for raw in raws)
        return _Page(tuple(record for record in opened if record is not None), next_offset)

    def _scan(self, consumer: KafkaConsumer, place: Place, span: tuple[int, int], opener: Opener) -> list[Record]:
        for careful in (False, True):
            scan = Scan(careful)
            offset, end = span
            while offset < end:
                raws, offset = self._poll(consumer, place, (offset, end))
                scan.feed(raws, opener)
            newest = scan.newest(opener)
            if newest is not None:
                return newest
        return []

    def _poll(
        self, consumer: KafkaConsumer, place: Place, span: tuple[int, int]
    ) -> tuple[Sequence[RawRecord], int]:  # fmt: skip
        """Some records before the end, and where to go on. What was fetched ahead is kept for the next step."""
        offset, end = span
        partition = TopicPartition(*place)
        if self._at != (place, offset):
            consumer.assign([partition])
            consumer.seek(partition, offset)
        self._at = None
        deadline = self._clock.now() + self._settings.request_timeout
        while True:
            raws = consumer.poll(timeout_ms=_TURN, max_records=PAGE).get(partition, [])
            position = raws[-1].offset + 1 if raws else consumer.position(partition, timeout_ms=_TURN)
            if raws or (position is not None and position >= end):
                self._at = (place, position)
                return [raw for raw in raws if raw.offset < end], position
            if self._clock.now() >= deadline:
                raise LogUnavailable(f"Kafka at {','.join(self._settings.servers)} gave nothing of {place} in time")

    async def _call(self, work: Callable[[KafkaConsumer], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, work)
        except (KafkaError, OSError) as error:
            raise LogUnavailable(told(self._settings, error)) from error
        except RuntimeError as error:  # the thread has been shut down
            raise LogClosed("the log is closed") from error

    def _attempt(self, work: Callable[[KafkaConsumer], T]) -> T:
        if self._consumer is None:
            self._consumer = make_consumer(self._settings)
        try:
            return work(self._consumer)
        except (KafkaError, OSError):
            self._drop()
            raise

    def _drop(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=_TURN)
            except (KafkaError, OSError) as error:
                logger.debug("closing a reader: %s", error)


def _spans(
    client: KafkaAdminClient, places: Sequence[Place], since: Instant | None
) -> tuple[dict[Place, tuple[int, int]], dict[Place, int]]:
    """Where places begin and end, and where `since` is in them; places without anything so late are left out."""
    return spans(client, places), {} if since is None else offsets_at(client, places, since)
