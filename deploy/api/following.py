"""Streams for readers that may be slow or gone: quiet ticks, write deadlines, and a last word before a cut.

Nothing is queued here. A stream pulls the next batch when the reader has taken the last one, so a slow reader costs one
batch and the socket's buffer; one that takes nothing until the write deadline is told why and cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, TypeVar

from aiohttp import web

from deploy.api.settings import AdminSettings
from events.units import Seconds

T = TypeVar("T")


class Cut(Exception):
    """The reader took nothing for too long."""


async def with_ticks(source: AsyncIterator[T], tick: Seconds, closing: asyncio.Event) -> AsyncGenerator[T | None, None]:
    """The items of `source`, and None whenever it was quiet for `tick` seconds, until it ends or `closing` is set."""
    closed = asyncio.ensure_future(closing.wait())
    pending: asyncio.Future[T] | None = None
    try:
        while True:
            if pending is None:
                pending = asyncio.ensure_future(_next(source))
            both: set[asyncio.Future[Any]] = {pending, closed}
            done, _ = await asyncio.wait(both, timeout=tick, return_when=asyncio.FIRST_COMPLETED)
            if pending in done:
                try:
                    item = pending.result()
                except StopAsyncIteration:
                    return
                pending = None
                yield item
            elif closed in done:
                return
            else:
                yield None
    finally:
        await _stop([closed] if pending is None else [closed, pending])


async def _stop(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel and see the end of all; what they would have raised is nobody's business any more."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


class Pipe:
    """The way to one reader."""

    def __init__(self, request: web.Request, content_type: str, settings: AdminSettings) -> None:
        self._request = request
        self._timeout = settings.write_timeout
        self._farewell = settings.farewell
        self.response = web.StreamResponse(
            headers={"Content-Type": content_type, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )

    async def open(self) -> None:
        """Send the head."""
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        """Hand over `data`. Cut: the reader took nothing until the write deadline; ConnectionError: it is gone."""
        try:
            async with asyncio.timeout(self._timeout):
                await self.response.write(data)
        except TimeoutError as error:
            raise Cut(f"the reader took nothing for {self._timeout:g} s") from error

    @property
    def gone(self) -> bool:
        """The reader has closed."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def close(self, last_word: bytes = b"") -> web.StreamResponse:
        """End the stream, saying `last_word`; a reader that does not even take that is aborted."""
        try:
            async with asyncio.timeout(self._farewell):
                if last_word:
                    await self.response.write(last_word)
                await self.response.write_eof()
        except (TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
        return self.response


class Turnstile:
    """At most so many streams at the same time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    def enter(self) -> bool:
        """Take a place; False when all are taken."""
        if self.open >= self._limit:
            return False
        self.open += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.open -= 1
