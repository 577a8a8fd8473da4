"""Says when the event log could not take news: what is counted silently is seen by nobody who has no dashboard."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from events.clock import Clock
from events.log import LogStats
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

EVERY: Final = Seconds(10.0)
"""Between looks: an outage is told some seconds after its first loss, and then not more often than this. Chosen."""


class Counting(Protocol):
    """An event log, as far as it counts."""

    def stats(self) -> LogStats:
        """Counts since the start."""


class Losses:
    """Looks at the log's count of dropped events while `run` runs."""

    def __init__(self, log: Counting, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._told = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + EVERY))
            self.look()

    def look(self) -> None:
        """Say how many were lost since the last look, if any were."""
        lost = self._log.stats().dropped
        if lost > self._told:
            logger.warning(
                "%d events of news were lost, %d since the start: the event log did not take them in time",
                lost - self._told, lost,
            )  # fmt: skip
        self._told = lost
