"""The one place that reads the clock of the operating system.

Nothing here jumps. `SystemClock` reads the wall once, when it is made, and goes on by the monotonic clock: a wall clock
that is stepped by an hour moves no deadline and shrinks no window. (A laptop that slept lags behind the wall until the
process starts again: see docs/flaws.md.)
"""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol

from events.units import Instant


class Clock(Protocol):
    """Now, and waiting until later."""

    def now(self) -> Instant:
        """The present instant; never smaller than the one before."""

    async def sleep_until(self, instant: Instant) -> None:
        """Return at `instant`, at once when it has passed."""


class SystemClock:
    """The wall clock at start plus monotonic time since."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> Instant:
        return Instant(self._offset + time.monotonic())

    async def sleep_until(self, instant: Instant) -> None:
        await asyncio.sleep(max(0.0, instant - self.now()))


class SimulatedClock:
    """Stands still until told to advance; sleepers wake in the order of their instants."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> Instant:
        return Instant(self._now)

    async def sleep_until(self, instant: Instant) -> None:
        if instant <= self._now:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (instant, self._count, woken))
        await woken

    def set(self, instant: float) -> None:
        """Jump to `instant` (never back) without waking anybody: for cores that are driven by hand."""
        self._now = max(self._now, instant)

    async def advance(self, seconds: float) -> None:
        """Move forward by `seconds`, waking each sleeper at its own instant and letting it run."""
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            instant, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, instant)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = end
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let the tasks that can run do so: `rounds` turns of the loop."""
    for _ in range(rounds):
        await asyncio.sleep(0)
