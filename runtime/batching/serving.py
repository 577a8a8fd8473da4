"""The front's HTTP: what may share a batch is gathered, everything else passes through byte by byte."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict
from typing import Final

import aiohttp
from aiohttp import web

from events.units import Seconds
from runtime.batching.batcher import Batcher, Reply
from runtime.core.batching.formats import COMPLETIONS, EMBEDDINGS, INFER, STATUS_PATH, Asked, Document, read

BODY_MOST: Final = 8 << 20
"""Bytes of a request that is gathered; a larger one passes through."""

CHUNK: Final = 1 << 16
HOP: Final = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "host", "content-length",
})  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1), and those that the client library writes itself."""


class Engine:
    """The engine behind the front. `open` on the loop, `close` at the end."""

    def __init__(self, url: str, within: Seconds) -> None:
        self._url, self._within = url, within
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Be ready to call it."""
        self._session = aiohttp.ClientSession(
            self._url, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0), trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )  # fmt: skip

    async def close(self) -> None:
        """No calls any more."""
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        assert self._session is not None, "open it first"
        return self._session

    async def send(self, path: str, body: Document, authorization: str) -> Reply:
        """POST a JSON document. Raises OSError, TimeoutError."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if authorization:
            headers["Authorization"] = authorization
        try:
            async with asyncio.timeout(self._within):
                async with self.session.post(path, data=json.dumps(body).encode(), headers=headers) as answer:
                    return Reply(answer.status, await answer.read())
        except aiohttp.ClientError as error:
            raise OSError(f"the engine did not answer: {type(error).__name__}: {error}") from error


class Front:
    """Answers for the engine: `app` is its web application."""

    def __init__(self, engine: Engine, batcher: Batcher) -> None:
        self._engine, self._batcher = engine, batcher
        self._running = 0

    def app(self) -> web.Application:
        """The application."""
        made = web.Application(client_max_size=BODY_MOST)
        made.router.add_get(STATUS_PATH, self._status)
        made.router.add_route("*", "/{rest:.*}", self._take)
        return made

    async def _status(self, _: web.Request) -> web.Response:
        one = self._batcher
        counts = {
            "running": self._running,
            "waiting": one.waiting,
            "batches": one.batches,
            "requests": one.requests,
            "alone": one.alone,
        }
        return web.json_response({**counts, "knobs": asdict(one.knobs)})

    async def _take(self, request: web.Request) -> web.StreamResponse:
        """Any request. Health and metrics are counted too, for the moment that they take: more is safe."""
        self._running += 1
        try:
            return await self._answer(request)
        finally:
            self._running -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        length = request.content_length
        gathers = request.path in (EMBEDDINGS, COMPLETIONS) or INFER.fullmatch(request.path) is not None
        plain = request.content_type == "application/json" and "Content-Encoding" not in request.headers
        if request.method != "POST" or request.query_string or not gathers or not plain:
            return await self._pass(request, None)
        if length is None or length > BODY_MOST:
            return await self._pass(request, None)
        raw = await request.read()
        asked = _asked(request.path, raw)
        if asked is None:
            return await self._pass(request, raw)
        return await self._gather(asked, request.headers.get("Authorization", ""))

    async def _gather(self, asked: Asked, authorization: str) -> web.Response:
        try:
            reply = await self._batcher.ask(asked, authorization)
        except TimeoutError:
            return _problem(504, "the engine did not answer in time")
        except OSError as error:
            return _problem(502, str(error))
        headers = {"X-Relume-Batch": str(reply.batch)}
        return web.Response(status=reply.status, body=reply.body, content_type="application/json", headers=headers)

    async def _pass(self, request: web.Request, raw: bytes | None) -> web.StreamResponse:
        """To the engine and back, as it is."""
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP}
        body = raw if raw is not None else (request.content if request.can_read_body else None)
        try:
            answer = await self._engine.session.request(
                request.method, request.rel_url, headers=headers, data=body, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return _problem(503, f"the engine cannot be reached: {type(error).__name__}")
        async with answer:
            told = web.StreamResponse(status=answer.status, reason=answer.reason)
            for key, value in answer.headers.items():
                if key.lower() not in HOP:
                    told.headers.add(key, value)
            if answer.content_length is not None:
                told.content_length = answer.content_length
            await told.prepare(request)
            async for chunk in answer.content.iter_any():
                await told.write(chunk)
            with suppress(ConnectionError):
                await told.write_eof()
            return told


def _asked(path: str, raw: bytes) -> Asked | None:
    try:
        return read(path, json.loads(raw))
    except (ValueError, RecursionError):
        return None  # not JSON: the engine says so in its own words


def _problem(status: int, message: str) -> web.Response:
    """As OpenAI's API tells errors."""
    told = {"error": {"message": message, "type": "server_error", "code": "engine_unreachable", "param": None}}
    return web.json_response(told, status=status)
