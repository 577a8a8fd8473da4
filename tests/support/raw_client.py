"""A client for tests of the data port: sends exactly the bytes it is told and parses what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field


@dataclass
class Reply:
    """One parsed answer. `clean`: it ended as HTTP says it should."""

    status: int
    headers: dict[str, str]
    body: bytes
    clean: bool = True
    informational: list[int] = field(default_factory=list)


def post(body: bytes, path: bytes = b"/v1/chat/completions", headers: bytes = b"", version: bytes = b"1.1") -> bytes:
    """A POST with Content-Length."""
    return b"POST %b HTTP/%b\r\nHost: test\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        path, version, headers, len(body), body,
    )  # fmt: skip


CHAT = b'{"messages":[{"role":"user","content":"hi"}],"model":"echo"}'
STREAM = b'{"messages":[{"role":"user","content":"hi"}],"model":"echo","stream":true}'


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> RawClient:
        """Connect to 127.0.0.1."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes, *, head_only: bool = False) -> Reply:
        """Send a request and read its answer."""
        await self.send(data)
        return await self.reply(head_only=head_only)

    async def reply(self, *, head_only: bool = False) -> Reply:
        """Read one answer, to its end or to the end of the connection."""
        async with asyncio.timeout(20):
            informational = []
            while True:
                status, headers = await self.head()
                if status >= 200:
                    break
                informational.append(status)
            reply = Reply(status, headers, b"", True, informational)
            if not head_only and status not in {204, 304}:
                await self._body(reply)
            return reply

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read one head."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        pairs = [line.split(": ", 1) for line in lines[1:]]
        assert len({name.lower() for name, _ in pairs}) == len(pairs), f"a header occurs twice: {lines}"
        return int(lines[0].split(" ")[1]), {name.lower(): value for name, value in pairs}

    async def _body(self, reply: Reply) -> None:
        if reply.headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in reply.headers
            reply.body, reply.clean = await self.chunks()
        elif "content-length" in reply.headers:
            try:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
            except asyncio.IncompleteReadError as error:
                reply.body, reply.clean = error.partial, False
            except ConnectionError:
                reply.clean = False
        else:
            reply.body, reply.clean = await self.until_closed()

    async def until_closed(self) -> tuple[bytes, bool]:
        """Read to the end of the connection: (bytes, whether it was closed and not reset)."""
        body = b""
        try:
            while data := await self.reader.read(65_536):
                body += data
        except ConnectionError:
            return body, False
        return body, True

    async def chunks(self) -> tuple[bytes, bool]:
        """Read a chunked body: (payload, whether it ended as it should)."""
        body = b""
        try:
            while True:
                size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0].strip(), 16)
                if not size:
                    while await self.reader.readuntil(b"\r\n") != b"\r\n":
                        pass
                    return body, True
                try:
                    body += await self.reader.readexactly(size)
                except asyncio.IncompleteReadError as error:
                    return body + error.partial, False
                assert await self.reader.readexactly(2) == b"\r\n"
        except (asyncio.IncompleteReadError, ConnectionError):
            return body, False

    async def at_end(self) -> bool:
        """Whether the gateway closes without sending anything more."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        """Close in order."""
        self.writer.close()

    async def closed(self) -> None:
        """Close, and wait until the socket is gone."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Close at once, with a reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
