"""Observing: what the log says of owned partitions goes into the estate. States as they come; of news, edges first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from autoscaler.declared import read_pool
from autoscaler.estate import Estate, Tenure
from autoscaler.following import Listener, OwnedTopics, closing, keep_on
from autoscaler.inbox import Inbox
from autoscaler.owning import NEWS, STATES, Means, Topics
from autoscaler.waiting import Waker
from events.log import Batch, Record, Start
from events.names import Topic
from events.types.pools import PoolDeclared
from events.units import Instant
from events.urgency import is_urgent

logger = logging.getLogger(__name__)

FOLD_SLICE: Final = 64
"""Records folded before the event loop is let go: under a millisecond on one core."""

FOLD_PART: Final = 8
"""When more wait than that many slices, this part of them is folded at once: folding must keep up with the reading."""


class Observer:
    """Reads gateways, states and news. `decide_edges`: what was folded just now is decided before more is read."""

    def __init__(self, means: Means, estate: Estate, waker: Waker, decide_edges: Callable[[], Awaitable[None]]) -> None:
        self._event_log, self._clock, self._pauses = means.log, means.clock, means.pauses
        self._pool = means.settings.pool
        self._estate = estate
        self._waker = waker
        self._decide_edges = decide_edges
        self._inbox = Inbox()
        self._folded = asyncio.Event()
        self.closed = False
        """The log was closed."""
        self.gateways_read = asyncio.Event()
        """Set once the gateways that stood in the log are known."""
        states = Listener(lambda one: Start("newest_per_key", partitions=(one,)), self._take_states, self._on_states)
        news = Listener(self._start_of_news, self._take_news, lambda _: None)
        self.topics = Topics(
            OwnedTopics(means.log, means.pauses, STATES, states), OwnedTopics(means.log, means.pauses, NEWS, news),
            self._take_once,
        )  # fmt: skip

    @property
    def waiting(self) -> bool:
        """Whether news was read and waits to be folded."""
        return bool(self._inbox)

    async def follow_common(self) -> None:
        """Follow what concerns all partitions until the log is closed: gateways, and the settings of the pool. (Those
        stand among the models, in a partition that may be another's.)"""

        async def follow(works: Callable[[], None]) -> None:
            topics, start = (Topic.GATEWAYS, Topic.MODELS), Start("newest_per_key")
            async with closing(self._event_log.subscribe(topics, start)) as subscription:
                async for batch in subscription:
                    works()
                    self._take_common(batch)

        await keep_on(follow, self._pauses)
        self.end()

    def fold_some(self) -> None:
        """A slice of what waits."""
        if self._inbox:
            now = self._clock.now()
            for record in self._inbox.take(max(FOLD_SLICE, len(self._inbox) // FOLD_PART)):
                self._estate.fold(record, now)
            self._folded.set()

    def end(self) -> None:
        """The log was closed: nobody folds any more."""
        self.closed = True
        self._folded.set()
        self._waker.wake()

    def _take_common(self, batch: Batch) -> None:
        now = self._clock.now()
        for record in batch.records:
            data = record.envelope.data
            if record.position.topic == Topic.GATEWAYS:
                self._estate.beat(record, now)
            elif isinstance(data, PoolDeclared) and data.pool == self._pool:
                self._priced(data, now)
        if batch.caught_up and not self.gateways_read.is_set():
            self._estate.know_gateways(now)
            self.gateways_read.set()
            self._estate.progress.moved()

    def _priced(self, declared: PoolDeclared, now: Instant) -> None:
        """What another release wrote, and this one cannot read, changes nothing."""
        try:
            self._estate.price(read_pool(declared), now)
            self._waker.wake()
        except ValueError as error:
            logger.warning("what pool %s says of cold starts is left aside: %s", declared.pool, error)

    def _on_states(self, partition: int) -> None:
        tenure = self._estate.tenures.get(partition)
        if tenure is not None and not tenure.states_read.is_set():
            self._estate.know_states(tenure, self._clock.now())
            self._waker.wake()

    def _start_of_news(self, partition: int) -> Start:
        tenure = self._estate.tenures.get(partition)
        return Start("time", self._clock.now() if tenure is None else tenure.read_to, (partition,))

    async def _take_states(self, batch: Batch) -> None:
        records = batch.records
        for begin in range(0, len(records), FOLD_SLICE):
            now = self._clock.now()
            for record in records[begin : begin + FOLD_SLICE]:
                self._estate.fold(record, now)
            self._waker.wake()
            if begin + FOLD_SLICE < len(records):
                await asyncio.sleep(0)

    async def _take_news(self, batch: Batch) -> None:
        """An edge is folded before the rest, which waits in the inbox."""
        now = self._clock.now()
        for record in batch.records:
            tenure = self._estate.tenures.get(record.position.partition)
            if tenure is not None:
                self._take_in(tenure, record, now)
        await self._decide_edges()
        self._waker.wake()
        await asyncio.sleep(0)
        while self._inbox.full and not self.closed:
            self._folded.clear()
            await self._folded.wait()

    def _take_once(self, record: Record) -> None:
        """Fold what no decision can have known of: what others knew is in their wish."""
        tenure, model = self._estate.tenures.get(record.position.partition), record.envelope.data.model
        if tenure is not None and record.appended_at > tenure.wished_at.get(model, -inf):
            self._estate.fold(record, self._clock.now())
            self._waker.wake()

    def _take_in(self, tenure: Tenure, record: Record, now: Instant) -> None:
        tenure.read_to = record.appended_at
        if tenure.past is not None:
            tenure.past.saw(record)
        if is_urgent(record.envelope.data):
            for one in self._inbox.with_all_before(record):
                self._estate.fold(one, now)
        else:
            self._inbox.put(record)
