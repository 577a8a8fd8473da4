"""An engine for tests of the data port that answers with exactly the bytes it is told, and keeps what it received."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)\s*$")

Handler = Callable[["EngineConnection", bytes], Awaitable[None]]


_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(body: bytes = b'{"ok":true}', head: bytes = _JSON_HEAD) -> bytes:
    """A whole answer with Content-Length."""
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass
class EngineConnection:
    """One accepted connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """Close in order."""
        self.writer.close()

    def reset(self) -> None:
        """Close at once, with a reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def closed_by_peer(self) -> None:
        """Return when the gateway closes."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            return


@dataclass
class RawEngine:
    """Serves on a port of its own; `handler(connection, request)` is called for each request, one after the other."""

    handler: Handler
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length is not None else b""
                self.requests.append(head + body)
                await self.handler(EngineConnection(reader, writer), head + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway closed, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()


def always(data: bytes) -> Handler:
    """Answer every request with the same bytes."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(data)

    return handle
