"""A fast make-believe engine: fixed answers and event streams, on uvloop without an HTTP library.

    python -m bench.upstream --port P [--host H] [--able-after SECONDS]

``GET /health`` is 503 until it is able to answer, ``GET /stats`` tells when what happened (wall clock). A POST is
answered with about 1 KB of JSON; with ``?chunks=N&every=S`` by an event stream. For relume it is the engine of a
`command` model; other proxies are measured against the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import Final, cast

import uvloop

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STREAM: Final = re.compile(rb"\?chunks=(\d+)&every=([\d.]+)")
_TEXT: Final = "Models cost nothing while nobody asks for them, and answer when somebody does. " * 9
_BODY: Final = json.dumps(
    {
        "id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": "bench",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _TEXT}}],
        "usage": {"prompt_tokens": 128, "completion_tokens": 160, "total_tokens": 288},
    }
).encode()  # fmt: skip
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
_UNABLE: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT: Final = b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"bench","choices":[{"index":0,"delta":{"content":" answer"},"logprobs":null,"finish_reason":null}],"system_fingerprint":"b0"}\n\n'  # noqa: E501 - one line of the protocol
CHUNK: Final = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
"""About 200 bytes, as engines send for a token."""
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Stats:
    """When what happened, by the wall clock. Requests are those that relume's gateway sent."""

    def __init__(self, able_at: float) -> None:
        self.able_at = able_at
        self.requests = 0
        self.first_request_at: float | None = None
        self.last_request_at: float | None = None

    def count(self) -> None:
        """A request came."""
        now = time.time()
        self.requests += 1
        self.last_request_at = now
        if self.first_request_at is None:
            self.first_request_at = now

    def answer(self) -> bytes:
        """As HTTP."""
        body = json.dumps(self.__dict__).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Upstream(asyncio.Protocol):
    """One connection: a request at a time."""

    def __init__(self, stats: Stats, loop: asyncio.AbstractEventLoop) -> None:
        self._stats = stats
        self._loop = loop
        self._data = b""
        self._left = 0
        self._every = 0.0
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        head_end = data.find(b"\r\n\r\n")
        if head_end >= 0:
            length = _LENGTH.search(data, 0, head_end)
            whole = head_end + 4 + (int(length[1]) if length is not None else 0)
            if len(data) >= whole:
                self._data = data[whole:]
                self._answer(data[:head_end])
                return
        self._data = data

    def _answer(self, head: bytes) -> None:
        if head.startswith(b"GET "):
            if head.startswith(b"GET /stats"):
                self._transport.write(self._stats.answer())
            else:
                self._transport.write(_UNABLE if time.time() < self._stats.able_at else ANSWER)
            return
        if b"x-relume-model" in head:
            self._stats.count()
        stream = _STREAM.search(head, 0, head.find(b"\r\n"))
        if stream is None:
            self._transport.write(ANSWER)
        else:
            self._left, self._every = int(stream[1]), float(stream[2])
            self._next_at = self._loop.time()
            self._transport.write(_STREAM_HEAD)
            self._chunk()

    def _chunk(self) -> None:
        if not self._left:
            self._transport.write(_LAST_CHUNK)
            return
        self._left -= 1
        self._transport.write(CHUNK)
        self._next_at += self._every
        self._timer = self._loop.call_at(self._next_at, self._chunk)


async def _serve(host: str, port: int, able_after: float) -> None:
    loop = asyncio.get_running_loop()
    stats = Stats(time.time() + able_after)
    server = await loop.create_server(lambda: Upstream(stats, loop), host, port, backlog=8192)
    await server.serve_forever()


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--able-after", type=float, default=0.0)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options.host, options.port, options.able_after))


if __name__ == "__main__":
    main()
