"""A small HTTP/1.1 server protocol for the simulated engine: whole requests in, whole or streamed answers out.

One request at a time a connection; pipelined ones wait their turn. A client that closes its side has left: there is no
half-open use of HTTP here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

import httptools

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
MAX_PIPELINED = 16
_READ = 256 * 1024  # the most that one read of the event loop brings, of which the end may be the next head

_REASONS = {status.value: status.phrase for status in HTTPStatus}


def _nothing() -> None:
    """The default of callbacks."""


class Exchange:
    """One request and its answer. After the client has left, writes go nowhere."""

    def __init__(self, connection: Connection, method: str, target: str) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers: dict[str, str] = {}
        self.body = b""
        self.on_leave: Callable[[], None] = _nothing
        """Called once when the client leaves before the answer is whole."""
        self.on_ready: Callable[[], None] = _nothing
        """Called when a slow client has read what was buffered."""
        self.keep_alive = True
        self.old_client = False  # HTTP/1.0 knows no chunks
        self.answered = False
        self._connection = connection

    @property
    def stalled(self) -> bool:
        """The client reads more slowly than it is sent to: wait for `on_ready`."""
        return self._connection.paused

    def reply(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """The whole answer."""
        extra = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
        head = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\ncontent-type: {content_type}\r\n{extra}"
        head += f"content-length: {len(body)}\r\n{self._ending()}\r\n"
        self._connection.send(head.encode() + (b"" if self.method == "HEAD" else body))
        self._done()

    def open_stream(self, content_type: str, headers: Mapping[str, str]) -> None:
        """The head of a streamed answer."""
        if self.old_client:
            self.keep_alive = False
        extra = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        coding = "" if self.old_client else "transfer-encoding: chunked\r\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\n{extra}{coding}"
        self._connection.send(f"{head}{self._ending()}\r\n".encode())

    def write(self, data: bytes) -> None:
        """A part of a streamed answer."""
        if data:
            self._connection.send(data if self.old_client else b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        """The proper end of a streamed answer."""
        if not self.old_client:
            self._connection.send(b"0\r\n\r\n")
        self._done()

    def abort(self) -> None:
        """Break off: the connection is reset, visibly."""
        self.answered = True
        self._connection.abort()

    def _ending(self) -> str:
        return "" if self.keep_alive else "connection: close\r\n"

    def _done(self) -> None:
        self.answered = True
        self._connection.answered(self)


class Connection(asyncio.Protocol):
    """Parses requests and hands them to `handle`, one after the other."""

    def __init__(self, handle: Callable[[Exchange], None], open_connections: set[Connection]) -> None:
        self._handle = handle
        self._open = open_connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Exchange] = deque()
        self._active: Exchange | None = None
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._head_bytes = 0
        self._body_bytes = 0
        self._unfinished = 0
        self._in_head = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self._open.discard(self)
        self._transport = None
        self._queue.clear()
        active, self._active = self._active, None
        if active is not None and not active.answered:
            active.on_leave()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._active is not None:
            self._active.on_ready()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()  # refused below; what follows is not HTTP
        except httptools.HttpParserError:
            self._refuse(400, "the request is not HTTP")
        if self._in_head:  # a header without an end is not reported by the parser, so its bytes are counted here
            self._unfinished += len(data)
            if self._unfinished > MAX_HEAD + _READ:
                self._refuse(431, f"the request's head is larger than {MAX_HEAD} bytes")

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = []
        self._body = []
        self._head_bytes = self._body_bytes = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unfinished = 0
        if dict(self._headers).get(b"expect", b"").lower() == b"100-continue" and self._active is None:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY:
            self._refuse(413, f"the body is larger than {MAX_BODY} bytes")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._parser.should_upgrade():
            self._refuse(501, "upgrades are not supported")
            return
        exchange = Exchange(self, self._parser.get_method().decode(), self._target.decode("latin-1"))
        exchange.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}
        exchange.body = b"".join(self._body)
        exchange.keep_alive = self._parser.should_keep_alive()
        exchange.old_client = self._parser.get_http_version() == "1.0"
        self._body = []
        if self._active is None:
            self._begin(exchange)
        elif len(self._queue) < MAX_PIPELINED:
            self._queue.append(exchange)
        else:
            self.abort()

    # What exchanges call.

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        if exchange is not self._active:
            return
        self._active = None
        if not exchange.keep_alive:
            self.close()
        elif self._queue:
            self._begin(self._queue.popleft())

    def close(self) -> None:
        """Close once what is buffered has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Reset."""
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, exchange: Exchange) -> None:
        self._active = exchange
        self._handle(exchange)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD:
            self._refuse(431, f"the request's head is larger than {MAX_HEAD} bytes")

    def _refuse(self, status: int, message: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._active is not None:  # an answer may be on its way; an error in its middle would be read as part of it
            self.abort()
            return
        body = f'{{"error":{{"message":"{message}","type":"invalid_request_error","param":null,"code":null}}}}'.encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
        self.send(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.close()
