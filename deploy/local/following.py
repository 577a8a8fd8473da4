"""Reads topics to their end and then as they grow, whatever happens to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from events.clock import Clock
from events.log import Batch, EventLog, LogUnavailable, Start
from events.units import Instant, Seconds

_log = logging.getLogger(__name__)

REREAD: Final = Seconds(1.0)
"""Before a log that could not be read is read again."""


async def follow(
    log: EventLog, clock: Clock, topics: Sequence[str], start: Start, take: Callable[[Batch], None]
) -> None:
    """Hand each batch to `take`, until the log is closed. When it cannot be read it is subscribed to again.

    A new subscription begins as the first did, so `take` must stand being told again what it knows.
    """
    while True:
        subscription = log.subscribe(topics, start)
        try:
            async for batch in subscription:
                take(batch)
        except LogUnavailable as error:
            _log.warning("%s cannot be read now: %s", ", ".join(topics), error)
        else:
            return
        finally:
            await subscription.close()
        await clock.sleep_until(Instant(clock.now() + REREAD))
