"""What is written in one turn of the event loop, sent at its end, one connection after the other.

A write wakes whoever reads it, and a wake costs as much as two writes. Spread over a turn, between the work for one
request and the next, the writes find engine and clients asleep again and again; together they find them awake: 0.28
wakes a request instead of 0.47 at 16 connections, and a twelfth less CPU (measured; see `docs/benchmarks.md`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Final, Protocol

FEW: Final = 2
"""Requests under way up to which nothing is kept: there is little that could leave together, and to be told of a turn's
end costs a lone request a fourteenth."""

MOST_WRITES: Final = 32
"""What waits is sent at once when it is so many writes: some of a large burst leave before all of it is read."""

DIRECT: Final = 16_384
"""Bytes from which a piece is not kept: its copy into the kernel costs more than a wake, and memory is bounded so."""


class Outgoing(Protocol):
    """What is used of a transport."""

    def write(self, data: bytes | bytearray) -> None:
        """Send."""

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""


class Outbox:
    """Keeps the order of what is written to a connection; whoever closes one or writes to it directly flushes first.

    `under_way`: the requests at work.
    `flushes` counts: while it is what it was at a write, nothing of that may have been sent.
    """

    __slots__ = ("_loop", "_under_way", "_waiting", "flushes")

    def __init__(self, loop: asyncio.AbstractEventLoop, under_way: Sized) -> None:
        self._loop = loop
        self._under_way = under_way
        self._waiting: list[tuple[Outgoing, bytes | bytearray]] = []
        self.flushes = 0

    def write(self, transport: Outgoing, data: bytes | bytearray) -> None:
        """Send at the end of this turn at the latest; nothing happens when the connection is closed by then."""
        waiting = self._waiting
        if not waiting:
            if len(self._under_way) <= FEW:
                self.flushes += 1
                if not transport.is_closing():
                    transport.write(data)
                return
            self._loop.call_soon(self.flush)
        waiting.append((transport, data))
        if len(waiting) >= MOST_WRITES or len(data) >= DIRECT:
            self.flush()

    def flush(self) -> None:
        """Send now."""
        waiting = self._waiting
        self.flushes += 1
        if waiting:
            self._waiting = []
            for transport, data in waiting:
                if not transport.is_closing():
                    transport.write(data)
