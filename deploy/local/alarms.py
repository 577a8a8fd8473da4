"""When to look at which model though nothing happened: one instant a model, one task for all."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator

from events.clock import Clock
from events.names import ModelName
from events.units import Instant


class Alarms:
    """Instants by model; setting one replaces the model's former one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at: dict[ModelName, Instant] = {}
        self._heap: list[tuple[Instant, ModelName]] = []
        self._earlier = asyncio.Event()

    def set(self, model: ModelName, at: Instant | None) -> None:
        """Ring for `model` at this instant; None: not at all."""
        if at is None:
            self._at.pop(model, None)
        elif self._at.get(model) != at:
            self._at[model] = at
            heapq.heappush(self._heap, (at, model))
            if self._heap[0] == (at, model):
                self._earlier.set()
        if len(self._heap) > 64 + 4 * len(self._at):  # mostly replaced ones
            self._heap = [(at, model) for model, at in self._at.items()]
            heapq.heapify(self._heap)

    async def rings(self) -> AsyncIterator[ModelName]:
        """Models, each at its instant. For one consumer."""
        while True:
            while self._heap and self._heap[0][0] <= self._clock.now():
                at, model = heapq.heappop(self._heap)
                if self._at.get(model) == at:
                    del self._at[model]
                    yield model
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
