"""Which partitions are ours. The group says which are assigned, the log says which are taken.

A consumer group deals the partitions of `relume.models` to the autoscalers; all topics that are keyed by model have the
same partitions, so a partition of models is what is owned. Whoever is assigned one says so in that partition of
`relume.decisions`; the offset of that record is the epoch of its wishes. The group alone fences nobody: a process that
was stopped believes in its old share when it goes on. The log does: readers refuse what comes later with an older
epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from autoscaler.estate import UNOWNED, Estate, Tenure
from autoscaler.following import OwnedTopics, closing, keep_on
from autoscaler.reading_back import PastReader, read_said_once
from autoscaler.settings import AutoscalerSettings
from autoscaler.waiting import Pauses
from events.clock import Clock
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Record, Start, Subscription
from events.names import Topic
from events.types.decisions import OwnershipTaken
from events.units import Instant, Seconds
from events.writer import EventWriter

GROUP: Final = "relume-autoscaler"
"""The consumer group in which autoscalers share the models."""

STATES: Final = (Topic.MODELS, Topic.DECISIONS, Topic.REPLICAS)
NEWS: Final = (Topic.REQUESTS, Topic.METRICS)

PASTS_AT_ONCE: Final = 2
"""Partitions whose past is read at a time: it bounds what is remembered meanwhile, and one alone would leave gaps."""

AT_PEACE: Final = Seconds(60.0)
"""Who has owned a partition for so long takes it again after the first pause, should it be lost."""


@dataclass(frozen=True, slots=True)
class Means:
    """What owning needs of the world."""

    log: EventLog
    clock: Clock
    writer: EventWriter
    settings: AutoscalerSettings
    pauses: Pauses


@dataclass(frozen=True, slots=True)
class Topics:
    """Readers of the partitions that are owned. `take_once`: takes what was said once, from before the live news."""

    states: OwnedTopics
    news: OwnedTopics
    take_once: Callable[[Record], None]


class Owning:
    """Takes what is assigned, gives up what is revoked. `run` until the log is closed."""

    def __init__(self, means: Means, estate: Estate, topics: Topics, gateways_read: asyncio.Event) -> None:
        self._means = means
        self._estate = estate
        self._topics = topics
        self._gateways_read = gateways_read
        self._holds: dict[int, asyncio.Task[None]] = {}
        self._past_turns = asyncio.Semaphore(PASTS_AT_ONCE)
        self.joined = False
        """Whether the group has said what is ours, be it nothing."""

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions that the group has given us."""
        return frozenset(self._holds)

    async def run(self) -> None:
        """Own what is assigned until the log is closed; what must not happen comes out of here."""
        try:
            async with asyncio.TaskGroup() as tasks:

                async def follow(works: Callable[[], None]) -> None:
                    await self._follow_group(tasks, works)

                await keep_on(follow, self._means.pauses)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _follow_group(self, tasks: asyncio.TaskGroup, works: Callable[[], None]) -> None:
        subscribe = self._means.log.subscribe
        try:
            async with closing(subscribe((Topic.MODELS,), Start("end"), GROUP)) as subscription:
                async for batch in subscription:
                    works()
                    self._rebalance(batch, tasks)
                    await _commit(subscription, batch)
        finally:  # who is no member owns nothing
            for partition in self.assigned:
                self._give_up(partition)

    def _rebalance(self, batch: Batch, tasks: asyncio.TaskGroup) -> None:
        for _, partition in batch.revoked:
            self._give_up(partition)
        for _, partition in batch.assigned:
            if partition not in self._holds:
                self._holds[partition] = tasks.create_task(self._hold(partition), name=f"partition-{partition}")
        if batch.caught_up or batch.assigned:
            self.joined = True
        self._estate.progress.moved()

    def _give_up(self, partition: int) -> None:
        """At once: the next owner may be deciding already."""
        hold = self._holds.pop(partition, None)
        if hold is not None:
            hold.cancel()
        tenure = self._estate.tenures.get(partition)
        if tenure is not None:
            self._leave(tenure)
        self._estate.lost_to.pop(partition, None)

    def _leave(self, tenure: Tenure) -> None:
        if self._estate.end(tenure):
            self._topics.states.drop(tenure.partition)
            self._topics.news.drop(tenure.partition)

    async def _hold(self, partition: int) -> None:
        """Own an assigned partition: take it, and take it again when another has taken it meanwhile."""
        clock, losses = self._means.clock, 0
        with suppress(LogClosed):
            await self._gateways_read.wait()
            while True:
                tenure = await self._take(partition)
                begun = clock.now()
                try:
                    await self._serve(tenure)
                finally:
                    self._leave(tenure)
                losses = 0 if clock.now() - begun > AT_PEACE else losses
                settings = self._means.settings
                pause = min(settings.retake_most, settings.retake_first * 2.0**losses)
                losses = min(losses + 1, 10)
                await self._means.pauses.sleep(Seconds(pause))

    async def _take(self, partition: int) -> Tenure:
        """Say that the partition is ours. The same event again and again while the log cannot be written."""
        means = self._means
        taken = means.writer.envelope(OwnershipTaken(partition=partition, owner=means.settings.owner))
        tries = 0
        while True:
            try:
                (position,) = await means.log.append([taken])
            except LogUnavailable as error:
                tries += 1
                await means.pauses.after(tries, error)
            else:
                return self._estate.begin(partition, position.offset)

    async def _serve(self, tenure: Tenure) -> None:
        """Read what there is to know, then stay until another takes the partition."""
        lost = asyncio.create_task(tenure.lost.wait())
        reading = asyncio.create_task(self._read(tenure))
        try:
            await asyncio.wait({lost, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                await lost
        finally:
            lost.cancel()
            reading.cancel()
            await asyncio.gather(lost, reading, return_exceptions=True)

    async def _read(self, tenure: Tenure) -> None:
        """The states; then live news, beside it what was said once while nobody owned them, and the past."""
        means, estate = self._means, self._estate
        self._topics.states.add(tenure.partition)
        await tenure.states_read.wait()
        self._topics.news.add(tenure.partition)
        await self._read_said_once(tenure)
        since = self._history_from(tenure)

        def done() -> None:
            estate.know_past(tenure, since, means.clock.now())

        async with self._past_turns:
            tenure.past = PastReader(means.log, means.clock, means.pauses, tenure.fold.begin_past())
            await tenure.past.read(tenure.partition, NEWS, since, done)

    async def _read_said_once(self, tenure: Tenure) -> None:
        means, since = self._means, Instant(tenure.live_from - UNOWNED)
        said = read_said_once(means.log, means.pauses, tenure.partition, since, tenure.live_from)
        async with aclosing(said):
            async for record in said:
                self._topics.take_once(record)
        tenure.wished_at.clear()

    def _history_from(self, tenure: Tenure) -> Instant:
        """As far back as any model's demand matters, within the bound."""
        policies = [view.declared.policy for view in tenure.fold.models.values() if view.declared is not None]
        most = self._means.settings.read_back_most
        longest = max((max(policy.stable_window, policy.keep_alive) for policy in policies), default=most)
        taken_at = tenure.fold.taken_at
        return Instant((self._means.clock.now() if taken_at is None else taken_at) - min(longest, most))


async def _commit(subscription: Subscription, batch: Batch) -> None:
    """So that the group's lag says something. If it fails, the same records come again, and say as little."""
    if batch.records:
        with suppress(LogUnavailable):
            await subscription.commit([record.position for record in batch.records])
