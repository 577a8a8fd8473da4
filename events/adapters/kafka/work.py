"""The loop's side of work on Kafka: batches from the consumer's thread, effects to the transactions' thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from events.adapters.kafka.client import Admin
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.work_member import Held, WorkMember
from events.adapters.kafka.work_writer import WorkWriter
from events.log import LogClosed
from events.work import Effect, Place, WorkBatch

CLOSING: Final = 5.0
"""Longest wait, in seconds, for each of the two threads to end."""


class KafkaWork:
    """See `events.work.WorkQueue`. Iterated by one task."""

    def __init__(
        self, settings: KafkaSettings, admin: Admin, topics: Sequence[str], names: tuple[str, str],
        partitions: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._deliveries: deque[WorkBatch] = deque()
        self._more = asyncio.Event()
        self._closed = False
        self.left: Callable[[KafkaWork], None] | None = None
        """Called once when it is closed."""
        worked = {topic: partitions[topic] for topic in topics}
        group, member = names
        named = (group, f"{group}/{member}")
        self._writer = WorkWriter(settings, admin, named, partitions, self._standing)
        self._member = WorkMember(settings, named, worked, self._from_thread, self._writer.begin())
        self._member.start()
        asyncio.wrap_future(self._member.ended).add_done_callback(self._ended)

    def __aiter__(self) -> AsyncIterator[WorkBatch]:
        return self

    async def __anext__(self) -> WorkBatch:
        while True:
            if self._deliveries:
                batch = self._deliveries.popleft()
                self._member.taken(len(batch.items)) if batch.items else None
                return batch
            if self._closed or self._member.ended.done():
                break
            self._more.clear()
            await self._more.wait()
        if not self._closed:
            self._member.ended.result()  # raises why
        raise StopAsyncIteration

    def hold(self, places: Collection[Place]) -> None:
        """See the port."""
        self._member.hold(frozenset(places))

    async def settle(self, effects: Mapping[Place, Effect]) -> frozenset[Place]:
        """See the port."""
        if self._closed:
            raise LogClosed("the work was left")
        return await asyncio.wrap_future(self._writer.settle(effects))

    async def behind(self) -> Mapping[Place, int]:
        """See the port."""
        return self._member.behind

    async def close(self) -> None:
        """See the port. What is being settled is settled first."""
        if self._closed:
            return
        self._closed = True
        self._more.set()
        if self.left is not None:
            self.left(self)
        await _bounded(self._writer.close())  # first: who has left the group commits no more
        self._member.stop()
        await _bounded(self._member.ended)

    def _standing(self) -> Held | None:
        """Asked in the transactions' thread."""
        return self._member.held if self._member.steady() else None

    def _from_thread(self, batch: WorkBatch) -> None:
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._take, batch)

    def _take(self, batch: WorkBatch) -> None:
        if not self._closed:
            self._deliveries.append(batch)
            self._more.set()

    def _ended(self, ended: asyncio.Future[None]) -> None:
        if not ended.cancelled():
            ended.exception()  # asked for, so that nobody complains; `__anext__` raises it
        self._more.set()


async def _bounded(ending: Future[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING):
            await asyncio.shield(asyncio.wrap_future(ending))
