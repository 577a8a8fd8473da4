"""The loop's side of a subscription: what the client's thread delivered, batch by batch."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from events.adapters.kafka.chosen import ChosenFollower
from events.adapters.kafka.follower import Delivery, Follower
from events.adapters.kafka.member import Member
from events.adapters.store import Place, offsets_after
from events.log import Batch, LogClosed, Position, Record, Start

logger = logging.getLogger(__name__)

CLOSING: Final = 5.0
"""Longest wait, in seconds, for a client's thread to end; a group that is left in order goes on at once."""


class KafkaSubscription:
    """See `events.log.Subscription`. Iterated by one task at a time."""

    def __init__(self, topics: tuple[str, ...], group: str | None, leave: Callable[[KafkaSubscription], None]) -> None:
        self.topics = topics
        self.group = group
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._followers: tuple[Follower, ...] = ()
        self._behind: set[Follower] = set()
        """Those that have not delivered all there was when they began."""
        self._deliveries: deque[tuple[Follower, Delivery]] = deque()
        self._held: set[Place] = set()
        self._leaving: Counter[Place] = Counter()
        """Places that were dropped, and how often the thread has still to say so."""
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def follow(self, followers: Sequence[Follower]) -> None:
        """Begin. One follower, or several of topics that no two share, each of all partitions and without a group."""
        self._followers, self._behind = tuple(followers), set(followers)
        for follower in followers:
            follower.start()

    def deliver(self, follower: Follower, delivery: Delivery) -> None:
        """Called in the client's thread; RuntimeError when the loop is gone."""
        self._loop.call_soon_threadsafe(self._take, follower, delivery)

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._closed:
            if self._deliveries:
                return self._batch(*self._deliveries.popleft())
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        raise StopAsyncIteration

    def add(self, start: Start) -> None:
        """See the port."""
        self._chosen().add(start)

    def drop(self, partitions: Collection[int]) -> None:
        """See the port."""
        self._chosen().drop(partitions)
        gone = {(topic, partition) for topic in self.topics for partition in partitions}
        self._leaving.update(gone)
        self._held -= gone
        self._drop_revoked()

    async def commit(self, positions: Sequence[Position]) -> None:
        """See the port. Also raises LogUnavailable, when the brokers did not take it in time: it may count or not."""
        if self.group is None:
            raise ValueError("only subscriptions with a group commit")
        if self._closed:
            raise LogClosed("the subscription is closed")
        (member,) = self._followers
        assert isinstance(member, Member)
        offsets = offsets_after(positions, self._held)
        if offsets:
            await asyncio.wrap_future(member.commit(offsets))

    async def close(self) -> None:
        """See the port."""
        self.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                for follower in self._followers:
                    await asyncio.shield(asyncio.wrap_future(follower.ended))

    def end(self) -> None:
        """End the iteration and the thread; waits for neither."""
        if not self._closed:
            self._closed = True
            self._deliveries.clear()
            self._wake()
            self._leave(self)
            for follower in self._followers:
                follower.stop()

    # Inside.

    def _take(self, follower: Follower, delivery: Delivery) -> None:
        if self._closed:
            return
        self._held.update(place for place in delivery.assigned if not self._leaving[place])
        self._held.difference_update(delivery.revoked)
        self._deliveries.append((follower, delivery))
        if delivery.revoked or self._leaving:
            self._drop_revoked()
            self._leaving = +(self._leaving - Counter(delivery.revoked))
        self._wake()

    def _chosen(self) -> ChosenFollower:
        follower = self._followers[0] if self._followers else None
        if not isinstance(follower, ChosenFollower):
            text = "only subscriptions that began with chosen partitions, without a group, may change them"
            raise ValueError(text)  # noqa: TRY004 - wrong use, as with the other logs
        return follower

    def _drop_revoked(self) -> None:
        """What waits of places that are gone is their new owner's."""
        kept: deque[tuple[Follower, Delivery]] = deque()
        for follower, delivery in self._deliveries:
            records = tuple(record for record in delivery.records if _place(record) in self._held)
            follower.taken(len(delivery.records) - len(records))
            assigned = tuple(place for place in delivery.assigned if place in self._held)
            kept.append((follower, Delivery(records, assigned, delivery.revoked, delivery.caught_up)))
        self._deliveries = kept

    def _batch(self, follower: Follower, delivery: Delivery) -> Batch:
        follower.taken(len(delivery.records))
        if delivery.caught_up:
            self._behind.discard(follower)
        caught_up = delivery.caught_up and not self._behind
        return Batch(delivery.records, delivery.assigned, delivery.revoked, caught_up)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def _place(record: Record) -> Place:
    return record.position.topic, record.position.partition
