"""Reading past demand back from the log, beside the live news, so that an edge of now waits for no history.

The past is folded apart, from the time of interest on, until it meets what was taken live; then the one takes the
other's place. Until then wishes may rise, and none falls. What is said once, while nobody owned the partition, is
read ahead of that: nobody would say it again to the live reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from autoscaler.fold import Fold
from autoscaler.waiting import Pauses
from events.clock import Clock
from events.log import EventLog, LogUnavailable, Query, Record
from events.names import Topic
from events.types.requests import ActivationRequested, RequestArrived, RequestFinished
from events.units import Instant

RECENT_MOST: Final = 4096
"""Live records of one partition that are remembered while its past is read: the reading must come so near to now."""

SLICE: Final = 64
"""Records folded before the event loop is let go: under a millisecond."""

SAID_ONCE: Final = (ActivationRequested, RequestArrived, RequestFinished)
"""News whose sender does not say it again. Of all else the newest comes within seconds."""


async def read_said_once(
    log: EventLog, pauses: Pauses, partition: int, since: Instant, until: Instant
) -> AsyncGenerator[Record, None]:
    """News that is said once and was appended from `since` on, before `until`; each once. Raises LogClosed."""
    query, tries, count = Query(Topic.REQUESTS, partition, from_time=since), 0, 0
    while True:
        try:
            async for record in log.read(query):
                if record.appended_at >= until:
                    return
                query = Query(Topic.REQUESTS, partition, from_offset=record.position.offset + 1)
                if isinstance(record.envelope.data, SAID_ONCE):
                    yield record
                count += 1
                if count % SLICE == 0:
                    await asyncio.sleep(0)
        except LogUnavailable as error:
            tries += 1
            await pauses.after(tries, error)
        else:
            return


class PastReader:
    """Reads the news of one partition back. `read` once; tell it of live records by `saw`, as they are read."""

    def __init__(self, log: EventLog, clock: Clock, pauses: Pauses, past: Fold) -> None:
        self._event_log = log
        self._clock = clock
        self._pauses = pauses
        self._past = past
        self._recent: deque[Record] = deque()
        self._forgotten: dict[str, int] = {}
        """The highest offset of each topic that was seen live and is not remembered."""

    def saw(self, record: Record) -> None:
        """A record was read live; whether it has been folded there yet does not matter, since news may be repeated."""
        self._recent.append(record)
        if len(self._recent) > RECENT_MOST:
            gone = self._recent.popleft().position
            self._forgotten[gone.topic] = gone.offset

    async def read(self, partition: int, topics: Sequence[str], since: Instant, done: Callable[[], None]) -> None:
        """Fold all from `since` on, and call `done` in the very turn in which nothing is missing. Raises LogClosed."""
        queries = {topic: Query(topic, partition, from_time=since) for topic in topics}
        tries = 0
        while True:
            try:
                for topic in topics:
                    await self._read(queries, topic)
            except LogUnavailable as error:
                tries += 1
                await self._pauses.after(tries, error)
                continue
            tries = 0
            begun = {topic: query.from_offset or 0 for topic, query in queries.items()}
            if all(self._forgotten.get(topic, -1) < begun[topic] for topic in topics):
                now = self._clock.now()
                for record in self._recent:
                    if record.position.offset >= begun[record.position.topic]:
                        self._past.take(record, now)
                done()
                return

    async def _read(self, queries: dict[str, Query], topic: str) -> None:
        """To the end as of now. What was folded is not asked for again, also when it breaks off."""
        query, count = queries[topic], 0
        async for record in self._event_log.read(query):
            self._past.take(record, self._clock.now())
            at = record.position
            queries[topic] = Query(topic, at.partition, from_offset=at.offset + 1)
            count += 1
            if count % SLICE == 0:
                await asyncio.sleep(0)
