"""Names that are marked and looked at one after the other: an API server that is away delays them, and loses none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from deploy.kubernetes.api import ApiUnavailable, pause

logger = logging.getLogger(__name__)


class Marked:
    """Does something about each name that is marked. `what`: for the log, with the name; `do` raises ApiUnavailable."""

    def __init__(self, what: str, do: Callable[[str], Awaitable[None]]) -> None:
        self._what = what
        self._do = do
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._tries = 0

    def mark(self, name: str) -> None:
        """Something about it changed."""
        self._dirty[name] = None
        self._wake.set()

    async def next(self) -> None:
        """Wait for a mark, and do all that is marked. After an ApiUnavailable the rest stays marked, after a pause."""
        await self._wake.wait()
        self._wake.clear()
        dirty, self._dirty = self._dirty, {}
        while dirty:
            name = next(iter(dirty))
            try:
                await self._do(name)
                self._tries = 0
            except ApiUnavailable as error:
                self._dirty = dirty | self._dirty
                self._wake.set()
                logger.debug("%s %s and others waits: %s", self._what, name, error)
                await pause(self._tries, error.after)
                self._tries += 1
                break
            del dirty[name]
