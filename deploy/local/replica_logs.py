"""Replicas' logs for people: the last lines, and lines as they come. (Fulfils `deploy.api.ports.ReplicaLogs`.)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.local.logs import LONGEST_LINE, UnknownReplica, clean, log_path, log_size, read_from, tail
from events.clock import Clock
from events.units import Instant

FOLLOW_EVERY: Final = 0.2
"""Seconds between two looks at a log that a person follows. (This is for eyes; no decision waits on it.)"""
MOST_LINES: Final = 10_000


class ReplicaLogFiles:
    """The logs of one folder, also of replicas that ended. `exists`: whether a replica is there now."""

    def __init__(self, folder: Path, clock: Clock, exists: Callable[[str], bool]) -> None:
        self._folder = folder
        self._clock = clock
        self._exists = exists

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        """The last `lines` lines of all its runs, oldest first; None for an unknown replica."""
        path = self._path(replica)
        if path is None or not await asyncio.to_thread(path.exists):
            return None
        return await asyncio.to_thread(tail, path, min(lines, MOST_LINES), last_run=False)

    async def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        """The last `lines` lines and then each new one, also over rotations and restarts, until the replica ends."""
        path = self._path(replica)
        if path is None:
            return
        position = await asyncio.to_thread(log_size, path)
        for line in await self.tail(replica, lines) or ():
            yield line
        rest = b""
        while True:
            exists = self._exists(replica)  # asked first: what it wrote until then is read below
            data, position = await asyncio.to_thread(read_from, path, position)
            *whole, rest = (rest + data).split(b"\n")
            for raw in whole:
                yield clean(raw.decode(errors="replace"))
            rest = rest[-LONGEST_LINE:]
            if not data:
                if not exists:
                    return
                await self._clock.sleep_until(Instant(self._clock.now() + FOLLOW_EVERY))

    def _path(self, replica: str) -> Path | None:
        try:
            return log_path(self._folder, replica)
        except UnknownReplica:
            return None
