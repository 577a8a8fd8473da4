"""Writing about objects, one after the other: what a burst of changes says becomes one write, and an API server that is
away delays nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from deploy.kubernetes.api import ApiError
from deploy.kubernetes.marked import Marked
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
        self._marked = Marked(f"the status of {word}", self._write)

    def mark(self, name: str) -> None:
        """Something about it changed."""
        self._marked.mark(name)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._marked.next()
            await self._clock.sleep_until(Instant(self._clock.now() + APART))

    async def _write(self, name: str) -> None:
        try:
            await self._tell(name)
        except ApiError as error:
            gone = error.status == HTTPStatus.NOT_FOUND  # it was deleted meanwhile
            level = logging.DEBUG if gone else logging.WARNING
            logger.log(level, "the status of %s %s cannot be written: %s", self._word, name, error)
