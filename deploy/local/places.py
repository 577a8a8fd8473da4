"""Places for starts: a few at a time, and nobody waits for ever for somebody else's.

Loading many models at once on a small machine makes all of them slow; so starts take places. A place is kept until the
replica is ready or has failed, but not longer than a bound: one that hangs delays the next by no more than that.
"""

from __future__ import annotations

import asyncio

from events.clock import Clock
from events.units import Instant, Seconds


class Places:
    """A bounded number of places, first come first served."""

    def __init__(self, count: int, bound: Seconds, clock: Clock) -> None:
        self._free = asyncio.Semaphore(count)
        self._bound = bound
        self._clock = clock

    @property
    def full(self) -> bool:
        """Whether one who comes now has to wait."""
        return self._free.locked()

    async def take(self) -> Place:
        """Wait for a place."""
        await self._free.acquire()
        return Place(self._free, self._clock, Instant(self._clock.now() + self._bound))


class Place:
    """A place of one start. It is given back once: by its holder or at its bound, whichever comes first."""

    def __init__(self, free: asyncio.Semaphore, clock: Clock, until: Instant) -> None:
        self._free = free
        self._held = True
        self._expiry = asyncio.get_running_loop().create_task(self._expire(clock, until))

    def give_back(self) -> None:
        """The start is over. May be called again."""
        if self._held:
            self._held = False
            self._expiry.cancel()
            self._free.release()

    async def _expire(self, clock: Clock, until: Instant) -> None:
        await clock.sleep_until(until)
        if self._held:
            self._held = False
            self._free.release()
