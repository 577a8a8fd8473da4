"""Looks at engines over HTTP: listening, healthy, the first token, how busy.

Polls quickly at first, since a small model is ready within a second and each poll is a connection on loopback (0.2 ms
of CPU); then more slowly, since who takes a minute may take some milliseconds more. `ready` is at most one poll late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp
import orjson

from events.clock import Clock
from events.units import Instant, Seconds
from runtime.ports import Call, Probe

PACE: Final = ((5.0, 0.010), (30.0, 0.050), (float("inf"), 0.200))
"""(until so many seconds after the first poll, seconds between polls)."""
ONE_ANSWER: Final = Seconds(10.0)
"""Seconds for one health answer: engines that load in their only thread accept and answer later."""
BROKEN_FOR: Final = Seconds(10.0)
"""Errors other than 503 for so long, from an engine that calls itself healthy, stay: its model is broken."""
LARGEST: Final = 4 << 20
RETRIED: Final = frozenset({408, 425, 429})
"""Statuses below 500 that say "later", not "never"."""


class HttpProber:
    """The prober over one pooled HTTP client. Close it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session = aiohttp.ClientSession(
            # a connection a probe: one that is kept would occupy a server that serves one connection at a time
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()

    async def wait_listening(self, host: str, port: int) -> None:
        """Return when a connection is accepted."""
        async for _ in self._polls():
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                continue
            writer.close()
            return

    async def wait_healthy(self, host: str, port: int, path: str) -> object | None:
        """Return when `path` answers 200: its parsed JSON, None when it is none."""
        async for _ in self._polls():
            status, body = await self._get(host, port, path, ONE_ANSWER)
            if status == 200:
                return _parse(body)
        raise AssertionError("polls do not end")

    async def warm_up(
        self, host: str, port: int, probe: Probe, hear: Callable[[bytes], None] | None = None
    ) -> str:  # fmt: skip
        """The one-token request, again while the answer is "later" (5xx, 429). Empty: it was answered with 200, and
        `hear` has the answer."""
        broken_at = Instant(self._clock.now() + BROKEN_FOR)
        async for _ in self._polls():
            try:
                async with self._session.post(
                    _url(host, port, probe.warmup_path), data=probe.warmup_body,
                    headers={"content-type": "application/json"}, timeout=aiohttp.ClientTimeout(total=None),
                ) as answer:  # fmt: skip
                    body = await _at_most(answer, LARGEST)
            except (aiohttp.ClientError, OSError):
                continue
            if answer.status == 200:
                if hear is not None:
                    hear(body)
                return ""
            later = answer.status == 503 or answer.status in RETRIED
            if not later and (answer.status < 500 or self._clock.now() >= broken_at):
                said = body.decode(errors="replace").strip()[:300]
                return f"POST {probe.warmup_path} was answered with {answer.status}: {said}"
        raise AssertionError("polls do not end")

    async def tell(self, host: str, port: int, call: Call, bound: Seconds) -> str:
        """POST it, once. Empty: it was answered with a status below 300 within `bound`; else what was said."""
        try:
            async with self._session.post(
                _url(host, port, call.path), data=call.body or None, timeout=aiohttp.ClientTimeout(total=bound),
                headers={"content-type": "application/json"} if call.body else {},
            ) as answer:  # fmt: skip
                body = await _at_most(answer, LARGEST)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            return f"POST {call.path} was not answered within {bound:g} s ({type(error).__name__})"
        if answer.status < 300:
            return ""
        said = body.decode(errors="replace").strip()[:300]
        return f"POST {call.path} was answered with {answer.status}: {said}"

    async def read(self, host: str, port: int, path: str, bound: Seconds) -> object | None:
        """The parsed JSON of `path`, if it answers 200 within `bound`."""
        body = await self.text(host, port, path, bound)
        return None if body is None else _parse(body)

    async def text(self, host: str, port: int, path: str, bound: Seconds) -> bytes | None:
        """What `path` answers, if with 200 within `bound`."""
        status, body = await self._get(host, port, path, bound)
        return body if status == 200 else None

    async def check(self, host: str, port: int, path: str, bound: Seconds) -> bool:
        """Whether `path` answers 200 within `bound`."""
        status, _ = await self._get(host, port, path, bound)
        return status == 200

    async def _get(self, host: str, port: int, path: str, bound: Seconds) -> tuple[int, bytes]:
        """Status and at most 4 MiB of the body; status 0: no answer within `bound`."""
        try:
            async with self._session.get(_url(host, port, path), timeout=aiohttp.ClientTimeout(total=bound)) as answer:
                return answer.status, await _at_most(answer, LARGEST)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, b""

    async def _polls(self) -> AsyncIterator[None]:
        """At once, then at the pace of `PACE`."""
        began = self._clock.now()
        while True:
            yield
            passed = self._clock.now() - began
            pause = next(pause for until, pause in PACE if passed < until)
            await self._clock.sleep_until(Instant(self._clock.now() + pause))


async def _at_most(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, or the beginning of one that is longer."""
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most:
            answer.close()
            break
    return b"".join(parts)


def _parse(body: bytes) -> object | None:
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return parsed


def _url(host: str, port: int, path: str) -> str:
    return f"http://{host}:{port}{path}"
