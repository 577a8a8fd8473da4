"""A connection between gateways: lines both ways, written once a turn of the loop, bounded in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runtime.desk.wire import LONGEST

MOST_UNSENT = 16 << 20
"""Bytes that may wait for a gateway that does not read: more than a whole presentation of 20,000 tickets. Beyond it the
connection ends; what was unsaid is in the next presentation."""


class Line(asyncio.Protocol):
    """See the module. `on_line` is told of each line, `on_end` once of the end."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._unsent: list[bytes] = []
        self._flushing = False
        self.open = False

    def say(self, line: bytes) -> None:
        """Send a line with all others of this turn."""
        self._unsent.append(line)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def end(self) -> None:
        """Send what was said, and close."""
        if self._transport is not None and self.open:
            self._flush()
            self._transport.close()

    def _flush(self) -> None:
        self._flushing = False
        transport, unsent = self._transport, self._unsent
        if transport is None or not self.open or not unsent:
            return
        self._unsent = []
        transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
        if transport.get_write_buffer_size() > MOST_UNSENT:
            transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclass
        self.open = True

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest
        for line in lines:
            if self.open:
                self._on_line(line)
        if len(rest) > LONGEST and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self.open = False
        self._rest = b""
        self._unsent = []
        self._on_end()
