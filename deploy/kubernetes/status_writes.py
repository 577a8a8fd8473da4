"""Writing about objects, one after the other: what a burst of changes says becomes one write, and an API server that is
away delays nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, pause
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

APART: Final = Seconds(0.5)
"""Between two writes of one object's status: a burst of phases is one story. Chosen."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of an object's newest generation that was looked at; `problem` empty: it is declared."""

    generation: int
    problem: str


class StatusWrites:
    """Tells about names that are marked. `word`: what people call one; `tell` raises ApiError, ApiUnavailable."""

    def __init__(self, word: str, clock: Clock, tell: Callable[[str], Awaitable[None]]) -> None:
        self._word = word
        self._clock = clock
        self._tell = tell
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()

    def mark(self, name: str) -> None:
        """Something about it changed."""
        self._dirty[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        tries = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = self._dirty, {}
            while dirty:
                name = next(iter(dirty))
                try:
                    await self._tell(name)
                    tries = 0
                except ApiUnavailable as error:
                    self._dirty = dirty | self._dirty
                    self._wake.set()
                    logger.debug("the status of %s %s and others waits: %s", self._word, name, error)
                    await pause(tries, error.after)
                    tries += 1
                    break
                except ApiError as error:
                    gone = error.status == HTTPStatus.NOT_FOUND  # it was deleted meanwhile
                    level = logging.DEBUG if gone else logging.WARNING
                    logger.log(level, "the status of %s %s cannot be written: %s", self._word, name, error)
                del dirty[name]
            await self._clock.sleep_until(Instant(self._clock.now() + APART))
