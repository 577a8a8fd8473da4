"""Clocks that the contract of logs is tried with."""

from __future__ import annotations

import asyncio

from events.clock import SimulatedClock, SystemClock
from events.units import Instant


class SteppedClock:
    """A simulated clock that does what `Clock` forbids. (Not a subclass: the clocks may be compiled.)"""

    def __init__(self) -> None:
        self._inner = SimulatedClock()
        self._stepped = 0.0

    def now(self) -> Instant:
        return Instant(self._inner.now() + self._stepped)

    async def sleep_until(self, instant: Instant) -> None:
        await self._inner.sleep_until(Instant(instant - self._stepped))

    async def advance(self, seconds: float) -> None:
        await self._inner.advance(seconds)

    def step(self, seconds: float) -> None:
        self._stepped += seconds

    async def tick(self) -> None:
        """Let a second pass."""
        self._inner.set(self._inner.now() + 1)


class BrokersClock(SteppedClock):
    """The time of append is the broker's: what is stepped here must not matter."""

    def now(self) -> Instant:
        return Instant(round(SystemClock().now(), 6))  # what the wire carries

    async def tick(self) -> None:
        """Let enough of real time pass that the broker, which counts milliseconds, has seen it."""
        await asyncio.sleep(0.02)
