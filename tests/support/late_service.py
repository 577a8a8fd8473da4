"""A Service as clients see it: one address, behind which kube-proxy sends each connection to an endpoint that it has
heard of, a while after that was so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

Endpoint = tuple[str, int]


class LateService:
    """Listens at `url`. What `set` says is heard `late` seconds after it."""

    def __init__(self, late: float) -> None:
        self._late = late
        self._endpoints: tuple[Endpoint, ...] = ()
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.refused = 0
        """Connections for which there was no endpoint, or whose endpoint did not take them."""

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, endpoints: Sequence[Endpoint]) -> None:
        """These are ready now."""
        found = tuple(endpoints)
        asyncio.get_running_loop().call_later(self._late, lambda: setattr(self, "_endpoints", found))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.closing(writer):
            if not self._endpoints:
                self.refused += 1
                return
            self._turn += 1
            host, port = self._endpoints[self._turn % len(self._endpoints)]
            try:
                there = await asyncio.open_connection(host, port)
            except OSError:
                self.refused += 1
                return
            with contextlib.closing(there[1]):
                ways = [asyncio.create_task(_relay(reader, there[1])), asyncio.create_task(_relay(there[0], writer))]
                try:  # either side's end is the connection's: clients and gateways close both ways at once
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
