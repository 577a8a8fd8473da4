"""Publishes what is: whole states, newest only, in order, under the writer's epoch; and news, which may be dropped.

A model (or training job) that changed is marked; one task takes all marked ones, makes their states *then*, and appends
them together. So many changes become one record, a slow log delays nobody's processes, and when the log cannot be
written the marks stay and the newest state is written when it can be again. A few appends are under way at a time: a
state need not wait for the acknowledgement of the one before, since appends of one process keep their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
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
FLIGHTS: Final = 4
"""Appends under way at a time; after one that failed, one. Chosen: a start has some four phases, and on a slow log they
follow one another faster than they are acknowledged."""
FIRST_RETRY: Final = Seconds(0.2)
LONGEST_RETRY: Final = Seconds(5.0)


N = TypeVar("N", bound=str)
"""What has a state: a model's name, or a training job's."""
_Waiting = dict[N, list[asyncio.Future[None]]]


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
        self._waiting: _Waiting[N] = {}
        self._told: dict[N, object] = {}
        """The states that were handed to the log last, unless that failed."""
        self._again: set[N] = set()
        self._singly: set[N] = set()
        """Taken with one that cannot be encoded: each is told by itself."""
        self._flying = 0
        self._aloft: Counter[N] = Counter()
        """Of whom a state is being appended."""
        self._landed = asyncio.Event()
        self._delay = FIRST_RETRY
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
        try:
            async with asyncio.TaskGroup() as flights:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._room()
                    if taken := self._take():
                        waiting = {name: self._waiting.pop(name) for name in taken if name in self._waiting}
                        envelopes = self._made(taken, waiting)
                        self._flying += 1
                        self._aloft.update(taken)
                        flights.create_task(self._fly(taken, envelopes, waiting))  # they begin in this order
                    if self._marked:
                        self._wake.set()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _room(self) -> None:
        """Return when one more append may be under way."""
        while self._flying >= (FLIGHTS if self._delay == FIRST_RETRY else 1):
            self._landed.clear()
            await self._landed.wait()

    def _take(self) -> list[N]:
        alone = next((name for name in self._marked if name in self._singly), None) if self._singly else None
        taken = list(self._marked)[:BATCH] if alone is None else [alone]
        self._singly.difference_update(taken)
        for name in taken:
            del self._marked[name]
        return taken

    def _made(self, names: list[N], waiting: _Waiting[N]) -> list[AnyEnvelope]:
        """Their states, as far as they are not told; or may not be yet, and somebody waits for that."""
        envelopes = []
        for name in names:
            made, again = self._make(name), name in self._again or (name in waiting and name in self._aloft)
            self._again.discard(name)
            if made is None:
                self._told.pop(name, None)
                continue
            state, cause = made
            if again or self._told.get(name) != state:
                self._told[name] = state
                envelopes.append(self._writer.envelope(state, cause=cause, epoch=self._writer.epoch))
        return envelopes

    async def _fly(self, taken: list[N], envelopes: list[AnyEnvelope], waiting: _Waiting[N]) -> None:
        """Append the states of `taken`; what failed is marked again, and its next try comes after a pause."""
        try:
            if envelopes:
                await self._log.append(envelopes)
        except Unencodable as error:  # it keeps only itself from being told, and relume from nothing
            if len(envelopes) > 1:
                self._singly.update(taken)
                self._mark_again(taken, waiting)
            else:
                self.failed_appends += 1
                logger.error("the state of %s cannot be written: %s", envelopes[0].key, error)  # noqa: TRY400 - its words say it all
                _settle(waiting.values())
        except LogUnavailable as error:
            self.failed_appends += 1
            logger.warning("the state of %d models or jobs waits for the log: %s", len(taken), error)
            self._mark_again(taken, waiting)
            delay, self._delay = self._delay, Seconds(min(LONGEST_RETRY, self._delay * 2))
            await self._clock.sleep_until(Instant(self._clock.now() + delay))
        else:
            self._delay = FIRST_RETRY if envelopes else self._delay
            _settle(waiting.values())
        self._land(taken)

    def _mark_again(self, taken: list[N], waiting: _Waiting[N]) -> None:
        for name in taken:
            self._told.pop(name, None)  # it may have been written all the same: tell it whatever it is then
        self._marked = dict.fromkeys(taken) | self._marked
        for name, futures in waiting.items():
            self._waiting[name] = futures + self._waiting.get(name, [])

    def _land(self, taken: list[N]) -> None:
        self._flying -= 1
        self._aloft.subtract(taken)
        self._aloft = +self._aloft
        self._landed.set()
        if self._marked:
            self._wake.set()
        elif not self._flying:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return when everything that was marked is written."""
        await self._idle.wait()


def _settle(waiting: Iterable[list[asyncio.Future[None]]]) -> None:
    for futures in waiting:
        for one in futures:
            if not one.done():
                one.set_result(None)
