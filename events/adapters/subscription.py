"""A subscription to a log in this process.

Each of its places is either *behind*, and is read from the store, or *live*, and gets each record from the hub right
after its commit. A place becomes live when the store has been read up to what the hub has told (`Hub.end`): both are
seen by the loop's thread only, so no record falls between. When the buffer of live records is full, all places go back
to behind: a slow subscriber costs reads, never records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from events.adapters.store import Chunk, Place, Store, offsets_after
from events.log import Batch, LogClosed, Position, Record, Start

BATCH = 512
"""Most records of one batch."""


class Switchboard(Protocol):
    """The hub, as a subscription sees it."""

    def end(self, place: Place) -> int:
        """The offset after the last record of `place` that subscriptions were told of."""

    def leave(self, subscription: LocalSubscription) -> None:
        """Take it out."""


@dataclass(slots=True)
class _Reading:
    """How far one place has been delivered. `offset` None: where to begin is still to be found."""

    start: Start
    target: int
    offset: int | None = None
    newest: bool = False
    live: bool = False


class LocalSubscription:
    """See `events.log.Subscription`. Iterated by one task at a time."""

    def __init__(
        self, board: Switchboard, store: Store, topics: tuple[str, ...], start: Start, group: str | None
    ) -> None:
        self.topics = topics
        self.group = group
        self._board = board
        self._store = store
        self._start = start
        self._readings: dict[Place, _Reading] = {}
        self._buffer: deque[Record] = deque()
        self._bound = BATCH
        self._assigned: list[Place] = []
        self._revoked: list[Place] = []
        self._told_caught_up = False
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def limit_buffer(self, bound: int) -> None:
        """How many live records may wait in memory."""
        self._bound = bound

    # What the hub calls.

    def follows(self, topic: str, partition: int) -> bool:
        """Whether it would take this partition."""
        chosen = self._start.partitions
        return topic in self.topics and (chosen is None or partition in chosen)

    def assign(self, places: Iterable[Place], start: Start | None = None) -> None:
        """Take those of `places` that are not held yet."""
        for place in places:
            if place not in self._readings:
                self._readings[place] = self._begin(place, self._start if start is None else start)
                self._assigned.append(place)
                self._told_caught_up = False
        self.wake()

    def revoke_all_but(self, places: Sequence[Place]) -> None:
        """Give back what is not in `places`, with what waits of it in the buffer."""
        gone = [place for place in self._readings if place not in places]
        if not gone:
            return
        for place in gone:
            del self._readings[place]
            if place in self._assigned:
                self._assigned.remove(place)  # came and went before anybody was told
            elif place not in self._revoked:
                self._revoked.append(place)
        self._buffer = deque(record for record in self._buffer if _place(record) in self._readings)
        self.wake()

    def push(self, place: Place, record: Record) -> bool:
        """Take a record that was just committed, if its place is live; whether there is a reason to wake."""
        reading = self._readings.get(place)
        if reading is None or not reading.live:
            return False
        if len(self._buffer) >= self._bound:
            self._fall_behind()
        elif reading.offset is not None and record.position.offset >= reading.offset:
            self._buffer.append(record)
        return True

    def wake(self) -> None:
        """Let a waiting iteration look again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def end(self) -> None:
        """The log closes: the iteration ends."""
        self._closed = True
        self._buffer.clear()
        self.wake()

    # What the subscriber calls.

    def add(self, start: Start) -> None:
        """See the port."""
        self._check_chosen()
        self.assign(((topic, partition) for topic in self.topics for partition in start.partitions or ()), start)

    def drop(self, partitions: Collection[int]) -> None:
        """See the port."""
        self._check_chosen()
        self.revoke_all_but([place for place in self._readings if place[1] not in partitions])

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._closed:
            if any(reading.offset is None for reading in self._readings.values()):
                await self._find_offsets()
                continue
            batch = await self._next_batch()
            if batch is not None:
                return batch
        raise StopAsyncIteration

    async def commit(self, positions: Sequence[Position]) -> None:
        """See the port. Positions of places that have been revoked are left out: their new owner's commits stand."""
        if self.group is None:
            raise ValueError("only subscriptions with a group commit")
        if self._closed:
            raise LogClosed("the subscription is closed")
        offsets = offsets_after(positions, self._readings)
        if offsets:
            await self._store.commit(self.group, offsets)

    async def close(self) -> None:
        if not self._closed:
            self.end()
            self._board.leave(self)

    # Inside.

    def _check_chosen(self) -> None:
        if self.group is not None or self._start.partitions is None:
            raise ValueError("only subscriptions that began with chosen partitions, without a group, may change them")

    def _begin(self, place: Place, start: Start) -> _Reading:
        end = self._board.end(place)
        if self.group is not None:
            return _Reading(start, target=end)
        return self._by_start(place, start, end)

    def _by_start(self, place: Place, start: Start, end: int) -> _Reading:
        match start.at:
            case "end":
                return _Reading(start, target=end, offset=end, live=end >= self._board.end(place))
            case "beginning":
                return _Reading(start, target=end, offset=0)
            case "newest_per_key":
                return _Reading(start, target=end, offset=0, newest=True)
            case "time":
                return _Reading(start, target=end)

    async def _find_offsets(self) -> None:
        """Where each new place begins: at the group's offset, else where `Start` says."""
        committed = {} if self.group is None else await self._store.committed(self.group)
        found: dict[Place, int] = {}
        for place, reading in list(self._readings.items()):
            if reading.offset is not None:
                continue
            if place in committed:
                reading.offset = committed[place]
                continue
            begun = self._by_start(place, reading.start, reading.target)
            if begun.offset is None and begun.start.time is not None:
                begun.offset = await self._store.offset_at(place, begun.start.time)
            found[place] = begun.offset or 0
            if self._readings.get(place) is reading:
                self._readings[place] = begun
        if self.group is not None and self._start.at in ("end", "time") and found:
            # The group begins here, also for a member that takes over before anything was committed.
            await self._store.commit(self.group, found)

    async def _next_batch(self) -> Batch | None:
        behind = next((place for place, reading in self._readings.items() if not reading.live), None)
        read: tuple[Record, ...] = ()
        if behind is not None:
            read = await self._read(behind, self._readings[behind])
            if self._closed:
                return None
        records = read + self._take()
        caught_up = self._caught_up()
        if records or self._assigned or self._revoked or (caught_up and not self._told_caught_up):
            assigned, revoked = tuple(self._assigned), tuple(self._revoked)
            self._assigned, self._revoked, self._told_caught_up = [], [], caught_up
            return Batch(records=records, assigned=assigned, revoked=revoked, caught_up=caught_up)
        if behind is None:
            await self._wait()
        return None

    async def _read(self, place: Place, reading: _Reading) -> tuple[Record, ...]:
        """One chunk of a place that is behind. State changes only after the wait: a cancelled wait costs nothing."""
        told = self._board.end(place)
        read = self._store.newest if reading.newest else self._store.follow
        chunk = await read(place, reading.offset or 0, BATCH)
        if self._readings.get(place) is not reading:  # revoked meanwhile
            return ()
        self._readings[place] = self._readings.pop(place)  # the other places that are behind come first next time
        self._advance(place, reading, chunk, told)
        return chunk.records

    def _advance(self, place: Place, reading: _Reading, chunk: Chunk, told: int) -> None:
        reading.offset = chunk.next_offset
        if chunk.more:
            return
        # All that had been told when the read began has been read.
        reading.offset = max(chunk.next_offset, told)
        reading.newest = False
        reading.live = reading.offset >= self._board.end(place)

    def _take(self) -> tuple[Record, ...]:
        taken: list[Record] = []
        while self._buffer and len(taken) < BATCH:
            record = self._buffer.popleft()
            reading = self._readings[_place(record)]
            reading.offset = record.position.offset + 1
            taken.append(record)
        return tuple(taken)

    def _fall_behind(self) -> None:
        self._buffer.clear()
        for reading in self._readings.values():
            reading.live = False

    def _caught_up(self) -> bool:
        return all(
            reading.offset is not None and not reading.newest and reading.offset >= reading.target
            for reading in self._readings.values()
        )

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None


def _place(record: Record) -> Place:
    return (record.position.topic, record.position.partition)
