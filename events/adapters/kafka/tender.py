"""Tending the topics: what followers leave out is put right here, once, by one process of the group.

Foreign producers' partitioners differ (librdkafka's default is not murmur2), and their keys too: a sound event that
stands in the wrong place is appended again under the right key with the same id, and skipped where it stood. What is
not readable becomes a dead letter. The offset is committed after that, so a crash repeats an append at most, and the
same id is the same event. News that strayed longer ago than `opening.STALE` is counted only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from events.adapters.kafka.follower import Plan
from events.adapters.kafka.opening import Opener, Tending
from events.adapters.kafka.work_reading import WORK
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import Batch, LogClosed, LogUnavailable, Position, Start, Subscription

logger = logging.getLogger(__name__)

GROUP: Final = "relume.tending"
"""The consumer group in which the processes of relume share this work."""

RETRY: Final = 1.0  # seconds before an append that failed is tried again

Append = Callable[[Sequence[AnyEnvelope]], Awaitable[tuple[Position, ...]]]


class Follow(Protocol):
    """Subscribes with an opener of one's own."""

    def __call__(self, plan: Plan, opener: Opener) -> Subscription: ...


class Tender:
    """Started once."""

    def __init__(self, partitions: Mapping[str, int], clock: Clock) -> None:
        self._partitions = partitions
        self.opener = Tending(partitions, clock.now)
        self.begun = False
        """Its group has offsets, so nothing that is written from now on is missed."""
        self._task: asyncio.Task[None] | None = None

    def start(self, append: Append, follow: Follow) -> None:
        """Tend until stopped."""
        topics = tuple(topic for topic in self._partitions if topic not in WORK)
        plan = Plan(topics, self._partitions, Start("end"), GROUP)
        self._task = asyncio.create_task(self._run(append, follow(plan, self.opener)), name="kafka-tender")

    async def stop(self) -> None:
        """Leave the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, append: Append, subscription: Subscription) -> None:
        try:
            async for batch in subscription:
                self.begun = True
                if batch.records:
                    await self._tend(append, subscription, batch)
        except LogClosed:
            return
        finally:
            await subscription.close()

    async def _tend(self, append: Append, subscription: Subscription, batch: Batch) -> None:
        """Again and again until it is done: nothing is skipped, and the group's lag shows what waits."""
        while True:
            try:
                await append([record.envelope for record in batch.records])
                await subscription.commit([record.position for record in batch.records])
            except LogUnavailable as error:
                logger.warning("strays and dead letters wait: %s", error)
                await asyncio.sleep(RETRY)
            else:
                return
