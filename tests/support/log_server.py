"""An event log in memory that several processes share, for tests without a broker: one process serves, others call.

Pickles over a Unix socket: for processes that a test has started itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from events.adapters.memory import MemoryEventLog
from events.envelope import AnyEnvelope
from events.log import Batch, LogClosed, Position, Query, Record, Start

_SIZE = 8


async def _read(reader: asyncio.StreamReader) -> object:
    size = int.from_bytes(await reader.readexactly(_SIZE), "big")
    return pickle.loads(await reader.readexactly(size))


def _write(writer: asyncio.StreamWriter, value: object) -> None:
    text = pickle.dumps(value)
    writer.write(len(text).to_bytes(_SIZE, "big") + text)


class LogServer:
    """Serves `log` at `path`. While `away` is set nothing is taken and nothing is delivered."""

    def __init__(self, log: MemoryEventLog, path: Path) -> None:
        self._log = log
        self._path = path
        self._here = asyncio.Event()
        self._here.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def go_away(self) -> None:
        """As a broker that does not answer."""
        self._here.clear()

    def come_back(self) -> None:
        self._here.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, number, value = await _read(reader)  # type: ignore[misc]  # as `RemoteLog` writes it
                work = self._append(writer, number, value) if kind == "append" else self._follow(writer, number, value)
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        writer.close()

    async def _append(self, writer: asyncio.StreamWriter, number: int, events: Sequence[AnyEnvelope]) -> None:
        await self._here.wait()
        positions = await self._log.append(events)
        _write(writer, (number, positions))

    async def _follow(self, writer: asyncio.StreamWriter, number: int, asked: tuple[Sequence[str], Start]) -> None:
        topics, start = asked
        subscription = self._log.subscribe(topics, start)
        try:
            async for batch in subscription:
                await self._here.wait()
                _write(writer, (number, batch))
        finally:
            await subscription.close()


class _Followed:
    """A subscription to the log of another process."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[Batch | None] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self._all()

    async def _all(self) -> AsyncIterator[Batch]:
        while (batch := await self.batches.get()) is not None:
            yield batch
        raise LogClosed("the log's process is gone")

    async def commit(self, positions: Sequence[Position]) -> None:
        """Nothing is committed: no groups here."""

    async def close(self) -> None:
        """The server goes on for nobody."""


class RemoteLog:
    """The log of a `LogServer`, as far as a gateway needs it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._appends: dict[int, asyncio.Future[tuple[Position, ...]]] = {}
        self._follows: dict[int, _Followed] = {}
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(cls, path: str) -> RemoteLog:
        return cls(*await asyncio.open_unix_connection(path))

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """See `EventLog.append`."""
        number = next(self._numbers)
        future = self._appends[number] = asyncio.get_running_loop().create_future()
        _write(self._writer, ("append", number, list(events)))
        try:
            return await future
        finally:
            self._appends.pop(number, None)

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See `EventLog.offer`."""
        _write(self._writer, ("append", next(self._numbers), [envelope]))
        return True

    def read(self, query: Query) -> AsyncIterator[Record]:
        """Not needed by a gateway."""
        raise NotImplementedError(query)

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> _Followed:
        """See `EventLog.subscribe`."""
        assert group is None
        number = next(self._numbers)
        self._follows[number] = _Followed()
        _write(self._writer, ("follow", number, (tuple(topics), start)))
        return self._follows[number]

    async def lag(self, group: str) -> Mapping[tuple[str, int], int]:
        """Not needed by a gateway."""
        raise NotImplementedError(group)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, value = await _read(reader)  # type: ignore[misc]  # as `LogServer` writes it
                if number in self._follows:
                    self._follows[number].batches.put_nowait(value)
                elif (future := self._appends.get(number)) is not None and not future.done():
                    future.set_result(value)
        except (asyncio.IncompleteReadError, ConnectionError):
            for followed in self._follows.values():
                followed.batches.put_nowait(None)
