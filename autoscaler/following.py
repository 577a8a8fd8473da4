"""Following the log through its failures: everything of some topics, or the partitions that are owned now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from autoscaler.waiting import Pauses
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Start, Subscription

Take = Callable[[Batch], Awaitable[None]]


@asynccontextmanager
async def closing(subscription: Subscription) -> AsyncIterator[Subscription]:
    """Close it at the end, however that comes."""
    try:
        yield subscription
    finally:
        await subscription.close()


async def keep_on(once: Callable[[Callable[[], None]], Awaitable[None]], pauses: Pauses) -> None:
    """Follow until the log is closed; a log that fails is asked again. `once` says with each batch that it works."""
    tries = 0

    def works() -> None:
        nonlocal tries
        tries = 0

    while True:
        try:
            await once(works)
        except LogClosed:
            return
        except LogUnavailable as error:
            tries += 1
            await pauses.after(tries, error)
        else:
            return


@dataclass(frozen=True, slots=True)
class Listener:
    """What a reader of owned partitions does. `start_of`: where a partition begins now, asked again after a failure.
    `caught_up`: all of a partition that stood in the log has been taken."""

    start_of: Callable[[int], Start]
    take: Take
    caught_up: Callable[[int], None]


class OwnedTopics:
    """Some topics, of the partitions that are owned now. `run` until the log is closed."""

    def __init__(self, log: EventLog, pauses: Pauses, topics: Sequence[str], listener: Listener) -> None:
        self._event_log = log
        self._pauses = pauses
        self._topics = topics
        self._listener = listener
        self._partitions: dict[int, None] = {}
        self._arriving: set[int] = set()
        self._subscription: Subscription | None = None

    def add(self, partition: int) -> None:
        """Follow it too, from its start."""
        self._partitions[partition] = None
        if self._subscription is not None:
            self._subscription.add(self._listener.start_of(partition))

    def drop(self, partition: int) -> None:
        """Follow it no longer."""
        if partition in self._partitions:
            del self._partitions[partition]
            self._arriving.discard(partition)
            if self._subscription is not None:
                self._subscription.drop((partition,))

    async def run(self) -> None:
        """Follow until the log is closed."""
        await keep_on(self._follow, self._pauses)

    async def _follow(self, works: Callable[[], None]) -> None:
        try:
            async with closing(self._event_log.subscribe(self._topics, Start(partitions=()))) as subscription:
                self._subscription = subscription
                self._arriving.clear()
                for partition in self._partitions:
                    subscription.add(self._listener.start_of(partition))
                async for batch in subscription:
                    works()
                    await self._take(batch)
        finally:
            self._subscription = None

    async def _take(self, batch: Batch) -> None:
        """What is assigned begins with this batch; it is through with the next that says so, this one included."""
        self._arriving.update(partition for _, partition in batch.assigned if partition in self._partitions)
        await self._listener.take(batch)
        if batch.caught_up:
            arrived, self._arriving = self._arriving, set()
            for partition in sorted(arrived & self._partitions.keys()):
                self._listener.caught_up(partition)
