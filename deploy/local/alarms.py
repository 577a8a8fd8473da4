"""When to look at which model or job though nothing happened: one instant a name, one task for all."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from events.clock import Clock
from events.units import Instant

N = TypeVar("N", bound=str)


class Alarms(Generic[N]):
    """Instants by name; setting one replaces the name's former one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at: dict[N, Instant] = {}
        self._heap: list[tuple[Instant, N]] = []
        self._earlier = asyncio.Event()

    def set(self, name: N, at: Instant | None) -> None:
        """Ring for `name` at this instant; None: not at all."""
        if at is None:
            self._at.pop(name, None)
        elif self._at.get(name) != at:
            self._at[name] = at
            heapq.heappush(self._heap, (at, name))
            if self._heap[0] == (at, name):
                self._earlier.set()
        if len(self._heap) > 64 + 4 * len(self._at):  # mostly replaced ones
            self._heap = [(at, name) for name, at in self._at.items()]
            heapq.heapify(self._heap)

    async def rings(self) -> AsyncIterator[N]:
        """Names, each at its instant. For one consumer."""
        while True:
            while self._heap and self._heap[0][0] <= self._clock.now():
                at, name = heapq.heappop(self._heap)
                if self._at.get(name) == at:
                    del self._at[name]
                    yield name
            await self._sleep()

    async def _sleep(self) -> None:
        """Until the earliest instant, or until an earlier one is set."""
        self._earlier.clear()
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Task[object]] = [loop.create_task(self._earlier.wait())]
        if self._heap:
            waits.append(loop.create_task(self._clock.sleep_until(self._heap[0][0])))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
