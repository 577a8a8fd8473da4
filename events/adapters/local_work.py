"""Work of a log that one process has for itself (memory, SQLite): it is the one member of every group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, Protocol

from events.adapters.store import Chunk
from events.envelope import AnyEnvelope
from events.log import LogClosed, Record, Subscription
from events.work import Assigned, Effect, Mark, Place, WorkBatch, WorkItem

PAGE: Final = 256
"""Records of one batch at most."""

TERM: Final = 1
"""There is one assignment, for as long as the queue is open."""


class WorkStore(Protocol):
    """What a log does for it."""

    async def follow(self, place: Place, offset: int, limit: int) -> Chunk:
        """At most `limit` records from `offset` on."""

    async def marks(self, group: str) -> Mapping[Place, Mark]:
        """How far the group's work is done."""

    async def settle(self, group: str, events: Sequence[AnyEnvelope], marks: Mapping[Place, Mark]) -> None:
        """Write events and marks in one transaction."""


class LocalWork:
    """See `events.work.WorkQueue`. `bell` is a subscription to the topics from their ends on."""

    def __init__(self, store: WorkStore, places: Sequence[Place], group: str, bell: Subscription) -> None:
        self._store = store
        self._places = tuple(places)
        self._group = group
        self._bell = bell
        self._positions: dict[Place, int] = {}
        self._held: frozenset[Place] = frozenset()
        self._more = asyncio.Event()
        self._closed = False
        self._ringing = asyncio.create_task(self._ring(), name="work-bell")

    def __aiter__(self) -> AsyncIterator[WorkBatch]:
        return self

    async def __anext__(self) -> WorkBatch:
        if not self._positions and not self._closed:
            marks = await self._store.marks(self._group)
            found = {place: marks.get(place, Mark(0)) for place in self._places}
            self._positions = {place: mark.next_offset for place, mark in found.items()}
            return WorkBatch(assigned=tuple(Assigned(place, mark, TERM) for place, mark in found.items()))
        while not self._closed:
            self._more.clear()
            items = await self._read()
            if items:
                return WorkBatch(items)
            await self._more.wait()
        raise StopAsyncIteration

    def hold(self, places: Collection[Place]) -> None:
        """See the port."""
        held = frozenset(places)
        if held != self._held:
            self._held = held
            self._more.set()

    async def settle(self, effects: Mapping[Place, Effect]) -> frozenset[Place]:
        """See the port."""
        if self._closed:
            raise LogClosed("the work was left")
        if any(effect.copies for effect in effects.values()):
            raise ValueError("a log of one process has no topics of others; only Kafka does")
        events = [event for effect in effects.values() for event in effect.events]
        await self._store.settle(self._group, events, {place: effect.mark for place, effect in effects.items()})
        return frozenset(effects)

    async def behind(self) -> Mapping[Place, int]:
        """See the port. A look at the store costs as much as reading it: nothing is known."""
        return {}

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        self._more.set()
        await self._bell.close()
        await asyncio.gather(self._ringing, return_exceptions=True)

    async def _read(self) -> tuple[WorkItem, ...]:
        found: list[WorkItem] = []
        for place in self._places:
            chunk = None
            while place not in self._held and len(found) < PAGE and (chunk is None or chunk.more):
                chunk = await self._store.follow(place, self._positions[place], PAGE - len(found))
                self._positions[place] = chunk.next_offset
                found += map(_item, chunk.records)
        return tuple(found)

    async def _ring(self) -> None:
        try:
            async for _ in self._bell:
                self._more.set()
        finally:
            self._closed = True
            self._more.set()


def _item(record: Record) -> WorkItem:
    return WorkItem(record.position, record.appended_at, record.envelope)


def places_of(topics: Sequence[str], partitions: int) -> list[Place]:
    """All places of these topics."""
    return [(str(topic), partition) for topic in topics for partition in range(partitions)]
