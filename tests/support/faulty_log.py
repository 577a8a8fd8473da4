"""A log that fails as a log may: away for a while, slow to deliver, unsure what it has written, losing and repeating
news.

Each role gets a log of its own over the same memory, so that what one role has written reaches the others late.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from events.adapters.memory import MemoryEventLog
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import Batch, LogUnavailable, Position, Query, Record, Start, Subscription
from events.names import TOPIC_KINDS, TopicKind
from events.units import Instant


@dataclass
class LogFaults:
    """What goes wrong now. Probabilities 0 to 1; `delay`: most seconds from an append to its delivery."""

    delay: float = 0.0
    loses_news: float = 0.0
    repeats_news: float = 0.0
    away: bool = False
    unsure: float = 0.0
    """Part of the appends that fail while the log is away and are written all the same: the answer came too late."""


@dataclass
class FaultyLog:
    """See `events.log.EventLog`. `watch` sees what is written together right before it is."""

    under: MemoryEventLog
    clock: Clock
    faults: LogFaults
    drawn: random.Random
    watch: Callable[[Sequence[AnyEnvelope]], None]
    trouble: str = ""
    lost: int = field(default=0, init=False)

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.faults.away:
            if self.drawn.random() < self.faults.unsure:
                await self._write(events)
            raise LogUnavailable("the simulated log is away")
        return await self._write(events)

    async def _write(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        self.watch(events)
        return await self.under.append(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        if self.faults.away:
            return False
        if self.drawn.random() < self.faults.loses_news:
            self.lost += 1
            return True
        self.watch((envelope,))
        return self.under.offer(envelope)

    async def read(self, query: Query) -> AsyncIterator[Record]:
        if self.faults.away:
            raise LogUnavailable("the simulated log is away")
        async for record in self.under.read(query):
            yield record

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        return _Late(self, self.under.subscribe(topics, start, group))

    async def lag(self, group: str) -> Mapping[tuple[str, int], int]:
        return await self.under.lag(group)


class _Late:
    """A subscription that delivers late, repeats news, and breaks while the log is away."""

    def __init__(self, log: FaultyLog, under: Subscription) -> None:
        self._log = log
        self._under = under
        self._batches = aiter(under)
        self._news: deque[Record] = deque(maxlen=8)
        self._dropped: set[int] = set()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await anext(self._batches)
        log, faults = self._log, self._log.faults
        if faults.away:
            raise LogUnavailable("the simulated log is away")
        if faults.delay:
            await log.clock.sleep_until(Instant(log.clock.now() + log.drawn.random() * faults.delay))
        if self._news and log.drawn.random() < faults.repeats_news:
            batch = Batch((*batch.records, log.drawn.choice(self._news)), caught_up=batch.caught_up)
        dropped = [one for one in batch.records if one.position.partition in self._dropped]
        if dropped:
            batch = replace(batch, records=tuple(one for one in batch.records if one not in dropped))
        self._news.extend(one for one in batch.records if TOPIC_KINDS[one.position.topic] is TopicKind.NEWS)
        return batch

    def add(self, start: Start) -> None:
        self._dropped.difference_update(start.partitions or ())
        self._under.add(start)

    def drop(self, partitions: Collection[int]) -> None:
        self._dropped.update(partitions)
        self._news = deque((one for one in self._news if one.position.partition not in partitions), maxlen=8)
        self._under.drop(partitions)

    async def commit(self, positions: Sequence[Position]) -> None:
        await self._under.commit(positions)

    async def close(self) -> None:
        await self._under.close()
