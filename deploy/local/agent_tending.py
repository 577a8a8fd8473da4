"""What the agent does when nobody asks: clears leftovers, and reads all weights anew at a rate that nobody notices."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from coldstart.cache import scrubbing, tending
from coldstart.cache.tending import Cleared
from deploy.local.agent import Agent
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

CLEAR_EVERY: Final = Seconds(600.0)
SCRATCH_KEPT: Final = Seconds(3600.0)
"""Half-written small files live for milliseconds: an hour old, nobody writes them any more. A choice."""
ROUND_AT_LEAST: Final = Seconds(3600.0)
"""Between two rounds of scrubbing, so that a small cache is not read all the time. A choice."""


class Tender:
    """`damaged` hears the digest of each blob that was put aside. Used on the event loop."""

    def __init__(self, agent: Agent, clock: Clock, rate: float, damaged: Callable[[str], None]) -> None:
        self._agent = agent
        self._clock = clock
        self._rate = rate
        self._damaged = damaged
        self._stop = threading.Event()
        self.scrubbed_bytes = 0
        self.quarantined = 0

    async def clear(self) -> None:
        """Clear leftovers every ten minutes, until cancelled."""
        while True:
            if self._agent.is_open:
                try:
                    await asyncio.to_thread(self.clear_once)
                except OSError as error:
                    logger.warning("leftovers in the weight cache cannot be cleared now: %s", error)
            await self._clock.sleep_until(Instant(self._clock.now() + CLEAR_EVERY))

    def clear_once(self) -> Cleared:
        """Old partial files, what no manifest names, trash, scratch. Evicts only what is beyond the capacity."""
        agent, now = self._agent, self._clock.now()
        room = replace(agent.settings.room, high=1.0, low=1.0)
        with agent.cache.changing:
            scrubbing.clear_scratch(agent.layout, now - SCRATCH_KEPT)
            return tending.collect(agent.layout, room, now, agent.cache.running())

    def collect(self) -> Cleared:
        """As a person asks for it: evicts down to the low watermark."""
        agent = self._agent
        with agent.cache.changing:
            return tending.collect(agent.layout, agent.settings.room, self._clock.now(), agent.cache.running())

    async def put_aside(self, digest: str) -> bool:
        """Quarantine a blob if it is wrong; whether it was."""
        if not await asyncio.to_thread(self._put_aside, digest):
            return False
        self.quarantined += 1
        logger.warning("%s is no longer what it was; it is in %s", digest, self._agent.layout.quarantine)
        self._damaged(digest)
        return True

    async def scrub(self) -> None:
        """Read all blobs again and again, until cancelled."""
        try:
            while True:
                began = self._clock.now()
                if self._agent.is_open and self._rate > 0:
                    await self.scrub_once()
                await self._clock.sleep_until(Instant(began + ROUND_AT_LEAST))
        finally:
            self._stop.set()

    async def scrub_once(self) -> None:
        """One round over all blobs."""
        layout = self._agent.layout
        all_blobs = scrubbing.after_mark(layout, await asyncio.to_thread(scrubbing.blobs, layout))
        for kept, chunk_bytes in all_blobs:
            try:
                right = await asyncio.to_thread(scrubbing.scrub, layout, kept, chunk_bytes, self._pause)
                if right is False:
                    await self.put_aside(kept.digest)
            except OSError as error:
                logger.warning("%s cannot be read anew: %s", kept.digest, error)

    def _put_aside(self, digest: str) -> bool:
        return scrubbing.put_aside(self._agent.layout, digest, self._agent.cache.changing)

    def _pause(self, read: int) -> bool:
        """In the reading thread. While a start waits for a fetch, the disk is the fetch's."""
        self.scrubbed_bytes += read
        self._stop.wait(read / self._rate)
        while self._agent.busy() and not self._stop.is_set():
            self._stop.wait(0.5)
        return not self._stop.is_set()
