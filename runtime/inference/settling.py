"""Settling: endings and offsets, gathered into transactions, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from events.clock import Clock
from events.codec import Unencodable
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogUnavailable
from events.types.inference import FailureReason, InferenceCompleted, InferenceFailed
from events.units import Instant, Seconds
from events.work import Effect, Mark, Place, WorkQueue
from runtime.core.inference.clerk import Clerk
from runtime.core.inference.endings import Answered, Command, Copied, Settlement
from runtime.inference.telling import events_of, small_events_of

logger = logging.getLogger(__name__)

MOST: Final = 256
"""Settlements of one transaction: it takes some milliseconds whether it has one or hundreds."""

MOST_BYTES: Final = 4 << 20
AGAIN: Final = Seconds(1.0)

Do = Callable[[list[Command]], None]


class Settler:
    """`add` settlements; `run` writes them. `terms` are kept by who reads."""

    def __init__(self, clerk: Clerk, clock: Clock, do: Do) -> None:
        self._clerk = clerk
        self._clock = clock
        self._do = do
        self._queue: WorkQueue | None = None
        self._pending: deque[Settlement] = deque()
        self._writing = 0
        """Settlements of the transaction that is under way."""
        self._bell = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.terms: dict[Place, int] = {}
        self.transactions = 0
        self.settled = 0
        self.failures = 0

    def use(self, queue: WorkQueue) -> None:
        """Write to this one from now on."""
        self._queue = queue

    def add(self, settlement: Settlement) -> None:
        """To be written."""
        self._pending.append(settlement)
        self._idle.clear()
        self._bell.set()

    async def drained(self, within: Seconds) -> None:
        """Wait until all is written, for so long at most."""
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            left = len(self._pending) + self._writing
            logger.warning("%d outcomes were not written; their requests are run again", left)

    async def run(self) -> None:
        """Write until the log is closed."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._pending:
                try:
                    await self._settle(self._next())
                except LogClosed:
                    await self._clock.sleep_until(Instant(self._clock.now() + AGAIN))
            self._writing = 0
            self._idle.set()

    def _next(self) -> list[Settlement]:
        batch: list[Settlement] = []
        size = 0
        while self._pending and len(batch) < MOST and size < MOST_BYTES:
            one = self._pending.popleft()
            batch.append(one)
            size += _size(one)
        self._writing = len(batch)
        return batch

    async def _settle(self, batch: list[Settlement]) -> None:
        ours, marks = self._clerk.finish(batch)
        queue = self._queue
        if not ours or queue is None:
            return
        effects = self._effects(ours, marks, events_of)
        settled: frozenset[Place] = frozenset()
        while effects:
            try:
                settled = await queue.settle(effects)
                break
            except Unencodable as error:
                logger.warning("an outcome cannot be written as it is: %s", error)
                effects = self._effects(ours, marks, small_events_of)
            except LogUnavailable as error:
                self.failures += 1
                logger.warning("outcomes wait to be written: %s", error)
                await self._clock.sleep_until(Instant(self._clock.now() + AGAIN))
                effects = {place: one for place, one in effects.items() if self.terms.get(place) == one.term}
        self.transactions += 1
        done = [one for one in ours if one.place in settled]
        self.settled += len(done)
        self._do(self._clerk.settled(done, self._clock.now()))

    def _effects(
        self, ours: list[Settlement], marks: dict[Place, tuple[int, tuple[int, ...]]],
        told: Callable[[Settlement, Instant], list[AnyEnvelope]],
    ) -> dict[Place, Effect]:  # fmt: skip
        now = self._clock.now()
        events: dict[Place, list[AnyEnvelope]] = {place: [] for place in marks}
        for one in ours:
            events[one.place] += one.amends
            events[one.place] += told(one, now)
        return {
            place: Effect(self.terms[place], tuple(events[place]), Mark(*mark), _copies(ours, events[place], place))
            for place, mark in marks.items()
        }


def _copies(
    ours: list[Settlement], events: list[AnyEnvelope], place: Place
) -> tuple[tuple[str, AnyEnvelope], ...]:  # fmt: skip
    """Answers and dead letters of requests that name a topic for their reply."""
    wanted = {
        one.errand.arrival.ident: one.errand.arrival.requested.reply_topic
        for one in ours
        if one.errand is not None and one.place == place and one.errand.arrival.requested.reply_topic
    }
    found = []
    for event in events if wanted else ():
        data = event.data
        if isinstance(data, InferenceCompleted | InferenceFailed):
            topic = wanted.get((data.origin.source, data.origin.id))
            allowed = not isinstance(data, InferenceFailed) or data.reason is not FailureReason.REPLY_TOPIC
            if topic is not None and allowed:
                found.append((topic, event))
    return tuple(found)


def _size(settlement: Settlement) -> int:
    ending = settlement.ending
    if isinstance(ending, Answered):
        return ending.size
    if isinstance(ending, Copied):
        return 4096
    return 0 if settlement.errand is None else settlement.errand.arrival.size
