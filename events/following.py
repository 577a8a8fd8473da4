"""Following topics: to the end of the log, then as it grows, whatever happens to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from events.clock import Clock
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Start
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

REREAD: Final = Seconds(1.0)
"""Before a log that could not be read is read again. Meanwhile its follower goes by what it knows."""


class Follower:
    """Hands each batch to `take`. A log that cannot be read is followed anew, from the same start.

    So `take` must stand being told again what it knows; with the newest values of all keys as the start nothing is
    missed.
    """

    def __init__(
        self, log: EventLog, clock: Clock, topics: Sequence[str], start: Start, take: Callable[[Batch], None]
    ) -> None:
        self._log = log
        self._clock = clock
        self._topics = topics
        self._start = start
        self._take = take
        self.caught_up = asyncio.Event()
        """All that stood in the log when following began has been taken."""
        self.interruptions = 0
        """How often the log could not be read."""

    async def run(self) -> None:
        """Follow until the log is closed. What `take` raises ends it too."""
        while True:
            try:
                await self._follow_once()
            except LogClosed:
                return
            except LogUnavailable as error:
                self.interruptions += 1
                logger.warning("%s cannot be read now: %s", ", ".join(self._topics), error)
            else:
                return
            await self._clock.sleep_until(Instant(self._clock.now() + REREAD))

    async def _follow_once(self) -> None:
        subscription = self._log.subscribe(self._topics, self._start)
        try:
            async for batch in subscription:
                self._take(batch)
                if batch.caught_up:
                    self.caught_up.set()
        finally:
            await subscription.close()
