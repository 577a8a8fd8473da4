"""The log in memory: for tests, simulation and `--events memory:`. Everything is lost with the process.

Each partition keeps the newest `keep` records; state topics keep the newest record of each key besides. An event is
known again by its (source, id) as long as it is among the last `keep` of all.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from events.adapters.hub import BUFFER, Hub
from events.adapters.local_work import LocalWork, places_of
from events.adapters.opened import OpenedLog
from events.adapters.store import Chunk, Place
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogStats, Position, Query, Record, Start, Subscription
from events.names import TOPIC_KINDS, TopicKind
from events.partitions import partition_of
from events.payload import kind_of
from events.units import Instant
from events.work import Mark, WorkQueue


@dataclass(slots=True)
class _Partition:
    """Records in order. `records` may have a gap before it, from which `newest` still holds some."""

    state: bool
    next_offset: int = 0
    last_time: float = 0.0
    records: deque[Record] = field(default_factory=deque)
    newest: dict[str, Record] = field(default_factory=dict)

    def add(self, topic: str, partition: int, now: Instant, envelope: AnyEnvelope) -> Record:
        self.last_time = max(self.last_time, now)
        record = Record(Position(topic, partition, self.next_offset), Instant(self.last_time), envelope)
        self.next_offset += 1
        self.records.append(record)
        self.newest.pop(envelope.key, None)  # so that the dict stays in the order of offsets
        self.newest[envelope.key] = record
        return record

    def forget_oldest(self) -> None:
        gone = self.records.popleft()
        if not self.state and self.newest.get(gone.envelope.key) is gone:
            del self.newest[gone.envelope.key]

    def all(self) -> list[Record]:
        first = self.records[0].position.offset if self.records else self.next_offset
        kept = itertools.takewhile(lambda record: record.position.offset < first, self.newest.values())
        return [*kept, *self.records]


class MemoryEventLog(OpenedLog):
    """See `events.log.EventLog`. An async context manager; or call `open` and `close`."""

    def __init__(
        self, clock: Clock, partitions: int = 1, keep: int = 100_000, *, subscriber_bound: int = BUFFER
    ) -> None:
        if partitions < 1 or keep < 1:
            raise ValueError(f"partitions and keep must be at least 1, got {partitions} and {keep}")
        super().__init__(clock)
        self._count = partitions
        self._keep = keep
        self._partitions: dict[Place, _Partition] = {}
        self._seen: dict[tuple[str, str], Position] = {}
        self._committed: dict[str, dict[Place, int]] = {}
        self._marks: dict[str, dict[Place, Mark]] = {}
        self.trouble = ""
        """Never: see the SQLite log's."""
        self._hub = Hub(self, partitions, subscriber_bound)
        self._closed = False

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """End subscriptions; calls after this raise LogClosed."""
        self._closed = True
        self._hub.close()

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """See the port."""
        self._check_open()
        return self._write(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See the port. Written at once, so there is no bound to reach."""
        if self._closed:
            self._counters.dropped += 1
            return False
        self._write((envelope,))
        self._counters.offered += 1
        return True

    async def read(self, query: Query) -> AsyncIterator[Record]:
        """See the port."""
        self._check_open()
        for record in self._select(query):
            yield record

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        """See the port."""
        self._check_open()
        return self._hub.subscribe(topics, start, group)

    def work(self, topics: Sequence[str], group: str, member: str) -> WorkQueue:
        """See `events.work.WorkLog`."""
        del member  # the only one
        bell = self.subscribe(topics, Start("end"))
        return LocalWork(self, places_of(topics, self._count), group, bell)

    async def lag(self, group: str) -> Mapping[Place, int]:
        """See the port."""
        self._check_open()
        return {
            place: sum(record.position.offset >= offset for record in self._at(place).all())
            for place, offset in self._committed.get(group, {}).items()
        }

    def stats(self) -> LogStats:
        """Counts since the log was made."""
        return self._counters.stats()

    # The store of subscriptions.

    async def follow(self, place: Place, offset: int, limit: int) -> Chunk:
        self._check_open()
        return _chunk(self._at(place).all(), offset, limit)

    async def newest(self, place: Place, offset: int, limit: int) -> Chunk:
        self._check_open()
        return _chunk(list(self._at(place).newest.values()), offset, limit)

    async def offset_at(self, place: Place, time: Instant) -> int:
        self._check_open()
        partition = self._at(place)
        return next((r.position.offset for r in partition.all() if r.appended_at >= time), partition.next_offset)

    async def committed(self, group: str) -> Mapping[Place, int]:
        self._check_open()
        return dict(self._committed.get(group, {}))

    async def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        self._check_open()
        committed = self._committed.setdefault(group, {})
        for place, offset in offsets.items():
            committed[place] = max(committed.get(place, 0), offset)

    async def marks(self, group: str) -> Mapping[Place, Mark]:
        self._check_open()
        return dict(self._marks.get(group, {}))

    async def settle(self, group: str, events: Sequence[AnyEnvelope], marks: Mapping[Place, Mark]) -> None:
        self._check_open()
        self._write(events)
        self._marks.setdefault(group, {}).update(marks)

    # Inside.

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _at(self, place: Place) -> _Partition:
        found = self._partitions.get(place)
        if found is None:
            state = TOPIC_KINDS.get(place[0]) is TopicKind.STATE
            found = self._partitions[place] = _Partition(state)
        return found

    def _write(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        topics = [str(kind_of(event.data).topic) for event in events]  # raises before anything is written
        now = self._clock.now()
        positions: list[Position] = []
        written: list[Record] = []
        for topic, event in zip(topics, events, strict=True):
            known = self._seen.get((event.source, event.id))
            if known is None:
                written.append(self._add(topic, event, now))
                known = written[-1].position
            positions.append(known)
        self._counters.appended += len(written)
        self._counters.duplicates += len(events) - len(written)
        self._counters.commits += 1
        self._hub.publish(written)
        return tuple(positions)

    def _add(self, topic: str, event: AnyEnvelope, now: Instant) -> Record:
        place = (topic, partition_of(event.key, self._count))
        partition = self._at(place)
        record = partition.add(*place, now, event)
        if len(partition.records) > self._keep:
            partition.forget_oldest()
        self._seen[event.source, event.id] = record.position
        if len(self._seen) > self._keep:
            del self._seen[next(iter(self._seen))]
        return record

    def _select(self, query: Query) -> list[Record]:
        partitions = range(self._count) if query.partition is None else (query.partition,)
        found: list[Record] = []
        for partition in partitions:
            held = self._at((query.topic, partition))
            records = list(held.newest.values()) if query.newest_per_key else held.all()
            if query.from_offset is not None:
                records = records[_first(records, query.from_offset) :]
            if query.from_time is not None:
                records = [record for record in records if record.appended_at >= query.from_time]
            found.extend(records)
        return found if query.limit is None else found[: query.limit]


def _first(records: Sequence[Record], offset: int) -> int:
    return bisect_left(records, offset, key=lambda record: record.position.offset)


def _chunk(records: Sequence[Record], offset: int, limit: int) -> Chunk:
    first = _first(records, offset)
    taken = tuple(records[first : first + limit])
    next_offset = taken[-1].position.offset + 1 if taken else offset
    return Chunk(taken, next_offset, more=first + limit < len(records))
