"""Publishes what is: whole states, newest only, in order; and news, which may be dropped.

A model that changed is marked; one task takes all marked ones, makes their states *then*, and appends them together.
So many changes become one record, a slow log delays nobody's replicas, and when the log cannot be written the marks
stay and the newest state is written when it can be again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, LogUnavailable
from events.names import ModelName
from events.payload import Unencodable
from events.types.replicas import ReplicasObserved
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

BATCH: Final = 500
"""States appended together."""
FIRST_RETRY: Final = Seconds(0.2)
LONGEST_RETRY: Final = Seconds(5.0)


class Publisher:
    """The one writer of `relume.replicas` here. `make` gives a model's state now, and what led to it."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock,
        make: Callable[[ModelName], tuple[ReplicasObserved, AnyEnvelope | None]],
    ) -> None:  # fmt: skip
        self._log = log
        self._writer = writer
        self._clock = clock
        self._make = make
        self._marked: dict[ModelName, None] = {}
        self._told: dict[ModelName, ReplicasObserved] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.dropped_news = 0
        self.failed_appends = 0

    def mark(self, model: ModelName) -> None:
        """Something about this model's replicas changed."""
        self._marked[model] = None
        self._wake.set()
        self._idle.clear()

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
            for model in taken:
                del self._marked[model]
            try:
                await self._append(taken)
                delay = FIRST_RETRY
            except LogUnavailable as error:
                self.failed_appends += 1
                logger.warning("the state of %d models waits for the log: %s", len(taken), error)
                self._marked = dict.fromkeys(taken) | self._marked
                for model in taken:
                    self._told.pop(model, None)  # it may have been written all the same: tell it whatever it is then
                await self._clock.sleep_until(Instant(self._clock.now() + delay))
                delay = Seconds(min(LONGEST_RETRY, delay * 2))
            if self._marked:
                self._wake.set()
            else:
                self._idle.set()

    async def _append(self, models: list[ModelName]) -> None:
        envelopes, states = [], {}
        for model in models:
            state, cause = self._make(model)
            if self._told.get(model) != state:
                states[model] = state
                envelopes.append(self._writer.envelope(state, cause=cause))
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
