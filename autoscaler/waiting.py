"""Waiting: until something happens or an instant comes, and between tries while the log fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from autoscaler.settings import AutoscalerSettings
from events.clock import Clock
from events.log import LogUnavailable
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

ALARM_MOST: Final = 3600.0
"""An alarm is set for at most so many seconds, and then again: timers of event loops overflow."""

TRIES_COUNTED: Final = 20
"""Pauses stop doubling after this many tries at the latest."""


class Waker:
    """Wakes the one task that rests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._alarm: tuple[Instant, asyncio.Task[None]] | None = None

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    async def rest(self, until: Instant | None) -> None:
        """Wait until woken, or until that instant."""
        self._woken.clear()
        if until is not None:
            until = min(until, Instant(self._clock.now() + ALARM_MOST))
        if until is not None and (self._alarm is None or until < self._alarm[0]):
            if self._alarm is not None:
                self._alarm[1].cancel()
            self._alarm = (until, asyncio.create_task(self._ring_at(until)))
        await self._woken.wait()

    def close(self) -> None:
        """No alarm rings any more."""
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None

    async def _ring_at(self, instant: Instant) -> None:
        await self._clock.sleep_until(instant)
        self._alarm = None
        self._woken.set()


class Pauses:
    """Pauses between tries while the log cannot be written or read: doubling from the first to the most."""

    def __init__(self, clock: Clock, settings: AutoscalerSettings) -> None:
        self._clock = clock
        self._settings = settings
        self.failures = 0
        """Pauses since the start."""

    async def after(self, tries: int, error: LogUnavailable) -> None:
        """Wait before the log is tried again; `tries` have failed in a row."""
        self.failures += 1
        settings = self._settings
        seconds = min(settings.retry_most, settings.retry_first * 2 ** (min(tries, TRIES_COUNTED) - 1))
        logger.warning("the event log failed (%s); trying again in %.1f s", error, seconds)
        await self.sleep(Seconds(seconds))

    async def sleep(self, seconds: Seconds) -> None:
        """Wait so long."""
        await self._clock.sleep_until(Instant(self._clock.now() + seconds))


class Progress:
    """Lets any number of tasks wait until something holds that others bring about."""

    def __init__(self) -> None:
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """Look again."""
        self._moved.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds` is true after somebody said that things have moved."""
        while not holds():
            self._moved.clear()
            await self._moved.wait()
