"""Publishes what is: whole states, newest only, in order, under the writer's epoch; and news, which may be dropped.

A model (or training job) that changed is marked; one task takes all marked ones, makes their states *then*, and appends
them together. So many changes become one record, a slow log delays nobody's processes, and when the log cannot be
written the marks stay and the newest state is written when it can be again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, LogUnavailable
from events.payload import Unencodable
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

BATCH: Final = 500
"""States appended together."""
FIRST_RETRY: Final = Seconds(0.2)
LONGEST_RETRY: Final = Seconds(5.0)


N = TypeVar("N", bound=str)
"""What has a state: a model's name, or a training job's."""


class Publisher(Generic[N]):
    """The one writer of these states. `make` gives one's state now and what led to it; None: nothing is to be told."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock,
        make: Callable[[N], tuple[object, AnyEnvelope | None] | None],
    ) -> None:  # fmt: skip
        self._log = log
        self._writer = writer
        self._clock = clock
        self._make = make
        self._marked: dict[N, None] = {}
        self._waiting: dict[N, list[asyncio.Future[None]]] = {}
        self._told: dict[N, object] = {}
        self._again: set[N] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.dropped_news = 0
        self.failed_appends = 0

    def mark(self, name: N) -> None:
        """Something about this one changed."""
        self._marked[name] = None
        self._wake.set()
        self._idle.clear()

    def say_again(self, name: N) -> None:
        """What another wrote hides this state from who reads the newest values only: write it, though it is told."""
        self._again.add(name)
        self.mark(name)

    async def record(self, name: N) -> None:
        """Return once its state of now, or a later one, stands in the log: for what may be done only after that."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(written)
        self.mark(name)
        await written

    def news(self, data: object) -> None:
        """Offer an event that may be lost."""
        if not self._log.offer(self._writer.envelope(data)):
            self.dropped_news += 1

    async def run(self) -> None:
        """Publish until cancelled. Raises LogClosed when the log is closed under it."""
        delay = FIRST_RETRY
        while True:
            await self._wake.wait()
            self._wake.clear()
            taken = list(self._marked)[:BATCH]
            for name in taken:
                del self._marked[name]
            waiting = {name: self._waiting.pop(name) for name in taken if name in self._waiting}
            try:
                await self._append(taken)
                delay = FIRST_RETRY
            except LogUnavailable as error:
                self.failed_appends += 1
                logger.warning("the state of %d models or jobs waits for the log: %s", len(taken), error)
                self._marked = dict.fromkeys(taken) | self._marked
                for name in taken:
                    self._told.pop(name, None)  # it may have been written all the same: tell it whatever it is then
                for name, futures in waiting.items():
                    self._waiting[name] = futures + self._waiting.get(name, [])
                await self._clock.sleep_until(Instant(self._clock.now() + delay))
                delay = Seconds(min(LONGEST_RETRY, delay * 2))
            else:
                _settle(waiting.values())
            if self._marked:
                self._wake.set()
            else:
                self._idle.set()

    async def _append(self, names: list[N]) -> None:
        envelopes, states = [], {}
        for name in names:
            made, again = self._make(name), name in self._again
            self._again.discard(name)
            if made is None:
                self._told.pop(name, None)
                continue
            state, cause = made
            if again or self._told.get(name) != state:
                states[name] = state
                envelopes.append(self._writer.envelope(state, cause=cause, epoch=self._writer.epoch))
        if envelopes:
            await self._write(envelopes)
            self._told |= states

    async def _write(self, envelopes: list[AnyEnvelope]) -> None:
        """Append all. One that cannot be encoded keeps only itself from being told, and relume from nothing."""
        try:
            await self._log.append(envelopes)
        except Unencodable as error:
            if len(envelopes) == 1:
                self.failed_appends += 1
                logger.error("the state of %s cannot be written: %s", envelopes[0].key, error)  # noqa: TRY400 - its words say it all
                return
            for envelope in envelopes:
                await self._write([envelope])

    async def wait_idle(self) -> None:
        """Return when everything that was marked is written."""
        await self._idle.wait()


def _settle(waiting: Iterable[list[asyncio.Future[None]]]) -> None:
    for futures in waiting:
        for one in futures:
            if not one.done():
                one.set_result(None)
