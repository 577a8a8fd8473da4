"""Follows the states that the desk serves by: what is declared, and what runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, LogUnavailable, Start
from events.names import Topic
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

TOPICS = (Topic.MODELS, Topic.REPLICAS)

TRY_AGAIN = Seconds(1.0)
"""Pause before following again after the log failed. Meanwhile the desk serves by what it knows."""


class Follower:
    """Hands every newest value, and then all that follow, to `apply`."""

    def __init__(self, log: EventLog, clock: Clock, apply: Callable[[AnyEnvelope], None]) -> None:
        self._log = log
        self._clock = clock
        self._apply = apply
        self.caught_up = asyncio.Event()
        """All that stood in the log when following began has been applied."""
        self.interruptions = 0
        """How often the log failed while it was followed."""

    async def run(self) -> None:
        """Follow until the log is closed. After a failure the newest values are read again, so nothing is missed."""
        while True:
            subscription = self._log.subscribe(TOPICS, Start(at="newest_per_key"))
            try:
                async for batch in subscription:
                    for record in batch.records:
                        self._apply(record.envelope)
                    if batch.caught_up:
                        self.caught_up.set()
            except LogUnavailable as error:
                self.interruptions += 1
                logger.warning("following models and replicas was interrupted: %s", error)
                await self._clock.sleep_until(Instant(self._clock.now() + TRY_AGAIN))
            else:
                return
            finally:
                await subscription.close()
