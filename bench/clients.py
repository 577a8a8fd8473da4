"""Clients without an HTTP library, so that they cost little beside what they measure."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
_MARK: Final = b"data: {"
MODEL: Final = "bench"


def body(size: int = 600, stream: bool = False) -> bytes:
    """A chat request of about `size` bytes."""
    asked = {"model": MODEL, "messages": [{"role": "user", "content": ""}], "max_tokens": 160, "stream": stream}
    padding = "x" * max(0, size - len(json.dumps(asked)))
    asked["messages"] = [{"role": "user", "content": padding}]
    return json.dumps(asked).encode()


def request(host: str, sent: bytes, path: str = "/v1/chat/completions") -> bytes:
    """A POST as OpenAI's client sends it, without its longer headers."""
    return (
        b"POST %b HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer sk-bench-0123456789abcdef\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (path.encode("ascii"), host.encode("ascii"), len(sent), sent)
    )


class Wrong(Exception):
    """An answer that is not what was asked for: the measurement is void."""


class Client(asyncio.Protocol):
    """One connection: sends a request, calls `answered` when the answer is whole, with its status."""

    def __init__(self, sent: bytes, answered: Callable[[Client, int], None]) -> None:
        self.chunks = 0
        self._sent = sent
        self._answered = answered
        self._data = b""
        self._tail = b""
        self._status = 0
        self._left = -1
        """Bytes of the body to come; -1: chunked, or the head is not whole."""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self.send()

    def send(self) -> None:
        """Ask (again)."""
        self._status, self._left, self._data, self._tail = 0, -1, b"", b""
        self._transport.write(self._sent)

    def close(self) -> None:
        """Leave."""
        self._answered = _nobody
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._status:
            self._data += data
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            self._status = int(self._data[9:12])
            length = _LENGTH.search(self._data, 0, end)
            data = self._data[end + 4 :]
            self._left = -1 if length is None else int(length[1])
            self._tail = b"\r\n"
        self.chunks += data.count(
            _MARK
        )  # an event that is cut in its first bytes would be missed: none is, see Streams
        if self._left >= 0:
            self._left -= len(data)
            whole = self._left <= 0
        else:
            self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
            whole = self._tail == _LAST_CHUNK
        if whole:
            self._answered(self, self._status)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        answered, self._answered = self._answered, _nobody
        answered(self, 0)


async def until(true: Callable[[], Awaitable[bool]], within: float) -> None:
    """Ask again and again, every 50 ms, until it is so; TimeoutError when not within so many seconds."""
    async with asyncio.timeout(within):
        while not await true():  # noqa: ASYNC110 - what is asked for happens in another process
            await asyncio.sleep(0.05)


def _nobody(client: Client, status: int) -> None:
    """Nobody wants to know any more."""


class Crowd:
    """Many connections with one request each; `whole` is set when all are answered."""

    def __init__(self, address: tuple[str, int], sent: bytes) -> None:
        self._address = address
        self._sent = sent
        self.clients: list[Client] = []
        self.answered_at: list[float] = []
        self.statuses: dict[int, int] = {}
        self._wanted = 0
        self._whole = asyncio.Event()

    async def ask(self, count: int, at_once: int = 200) -> None:
        """Open `count` more connections, `at_once` at a time, each of which asks at once."""
        self._wanted += count
        loop = asyncio.get_running_loop()
        for begin in range(0, count, at_once):
            opened = await asyncio.gather(*(
                loop.create_connection(lambda: Client(self._sent, self._on_answer), *self._address)
                for _ in range(min(at_once, count - begin))
            ))  # fmt: skip
            self.clients += [client for _, client in opened]

    async def whole(self, within: float) -> None:
        """Wait until everybody has an answer. Raises Wrong when not within so many seconds, or when one is not 200."""
        try:
            async with asyncio.timeout(within):
                await self._whole.wait()
        except TimeoutError:
            raise Wrong(f"{len(self.answered_at)} of {self._wanted} answers within {within} s") from None
        if set(self.statuses) != {200}:
            raise Wrong(f"answers by status (0: none): {self.statuses}")

    def again(self) -> None:
        """All of them ask once more on their connections; `whole` waits for these answers."""
        self.answered_at.clear()
        self._whole.clear()
        for client in self.clients:
            client.send()

    def close(self) -> None:
        """Leave, answered or not."""
        for client in self.clients:
            client.close()

    @property
    def chunks(self) -> int:
        """Events that all have received so far."""
        return sum(client.chunks for client in self.clients)

    def _on_answer(self, client: Client, status: int) -> None:
        del client
        self.answered_at.append(time.time())
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if len(self.answered_at) >= self._wanted:
            self._whole.set()


async def closed_loop(address: tuple[str, int], sent: bytes, connections: int, seconds: float) -> int:
    """Ask on so many connections, each again when it is answered; the answers. Raises Wrong on one that is not 200."""
    done = 0
    statuses: set[int] = set()
    ended = False

    def again(client: Client, status: int) -> None:
        nonlocal done
        done += 1
        statuses.add(status)
        if not ended and status:
            client.send()

    loop = asyncio.get_running_loop()
    clients: Sequence[Client] = [
        (await loop.create_connection(lambda: Client(sent, again), *address))[1] for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    ended = True
    if statuses != {200}:
        raise Wrong(f"answers with statuses {sorted(statuses)}")
    for client in clients:
        client.close()
    return done
