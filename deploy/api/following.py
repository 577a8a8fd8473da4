"""Streams for readers that may be slow or gone: quiet ticks, write deadlines, and a last word before a cut.

Nothing is queued here. A stream pulls the next batch when the reader has taken the last one, so a slow reader costs one
batch and the socket's buffer; one that takes nothing until the write deadline is told why and cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from aiohttp import web

from deploy.api.problem import ProblemError, refuse
from deploy.api.settings import AdminSettings
from events.log import EventLogError
from events.units import Seconds

T = TypeVar("T")


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Form:
    """How a stream looks: its content type, and how it says why it ends before its end."""

    content_type: str
    last_word: Callable[[str], bytes]


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


class Streams:
    """Serves streams: at most so many at a time, each with deadlines, each with an end that says why.

    `closing`: the port shuts down; every stream says so and ends. `open`: how many there are now.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self.closing = asyncio.Event()
        self.open = 0

    def ticking(self, source: AsyncIterator[T]) -> AsyncGenerator[T | None, None]:
        """The items of `source`, None when it is quiet, and the end when the port closes."""
        return with_ticks(source, self._settings.heartbeat, self.closing)

    async def serve(self, request: web.Request, form: Form, chunks: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Send `chunks`; ProblemError when too many are open. (An empty chunk only asks whether the reader is there.)

        After the first byte no problem document can be sent any more: what fails then is the last word of the stream.
        """
        if self.open >= self._settings.max_streams:
            raise _too_many(self._settings)
        self.open += 1
        pipe = _Pipe(request, form.content_type, self._settings)
        try:
            why = await self._send(pipe, chunks)
            return await pipe.close(form.last_word(why) if why else b"")
        except ConnectionError:
            return pipe.response
        finally:
            self.open -= 1

    async def _send(self, pipe: _Pipe, chunks: AsyncGenerator[bytes, None]) -> str:
        """Why the stream ends, if it does not end by itself."""
        try:
            async with aclosing(chunks):
                await pipe.open()
                async for chunk in chunks:
                    await pipe.send(chunk)
        except Cut as cut:
            return str(cut)
        except EventLogError as error:
            return f"the event log cannot be used now: {error}"
        except ConnectionError:
            raise
        except Exception:  # the outermost place of a stream: logged whole, never shown to the reader
            logger.exception("a stream of the admin port failed")
            return "relume made a mistake; its log tells more"
        return "relume is shutting down" if self.closing.is_set() else ""


class _Pipe:
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
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the reader has gone")
        if not data:
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self.response.write(data)
        except TimeoutError as error:
            raise Cut(f"the reader took nothing for {self._timeout:g} s") from error

    async def close(self, last_word: bytes) -> web.StreamResponse:
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


def _too_many(settings: AdminSettings) -> ProblemError:
    error = refuse(
        HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", f"{settings.max_streams} streams are open already",
        remedy="close one and try again",
    )  # fmt: skip
    error.headers["Retry-After"] = "5"
    return error
