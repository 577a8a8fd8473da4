"""How late the event loop runs what is due: the first number to look at when everything is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from deploy.api.ports import Reading

EVERY = 0.25
"""Seconds between looks: cheap, and short enough to meet a stall of a second."""


class LoopLag:
    """Measures while `run` runs; `read` gives the last and the largest lateness since the last read."""

    def __init__(self) -> None:
        self._last = 0.0
        self._largest = 0.0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            self._last = max(0.0, loop.time() - due)
            self._largest = max(self._largest, self._last)

    def read(self) -> Iterable[Reading]:
        """Two gauges."""
        largest, self._largest = self._largest, self._last
        return (
            Reading("loop_lag_seconds", "Lateness of the event loop, last look.", self._last),
            Reading("loop_lag_max_seconds", "Largest lateness of the event loop since the last scrape.", largest),
        )
