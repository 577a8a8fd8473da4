"""Clients that lose what others lose: none of them asks twice. For whatever is replaced under them."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from events.clock import SystemClock

STREAMED: Final = 40
"""Tokens of an answer that takes about a second."""


@dataclass
class Said:
    """What a client was told that it was not promised."""

    at: float
    client: str
    what: str
    retry_after: str = ""

    @property
    def promised(self) -> bool:
        """Whether it is what the one process promises: nobody is there, or when to come again."""
        nobody = self.what.startswith(("ServerDisconnected", "ClientConnect", "ClientOSError"))
        return nobody or (self.what.startswith("503") and bool(self.retry_after))


@dataclass
class Clients:
    """Clients of a Service, none of which tries anything twice: some with a new connection for each request, some that
    keep theirs, some that stream. They think for a moment between two requests."""

    url: str
    model: str
    answered: Counter[str] = field(default_factory=Counter)
    failed: list[Said] = field(default_factory=list)
    slowest: float = 0.0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _clock: SystemClock = field(default_factory=SystemClock)

    def start(self, kinds: Mapping[str, int]) -> None:
        """So many of each kind: fresh, kept, streams."""
        self._tasks += [
            asyncio.create_task(self._client(kind, index)) for kind, count in kinds.items() for index in range(count)
        ]

    @property
    def away(self) -> float:
        """Seconds from the first to the last failure."""
        return max((one.at for one in self.failed), default=0.0) - min((one.at for one in self.failed), default=0.0)

    async def some(self, more: int = 20) -> None:
        """Return when so many more were answered."""
        wanted = self.answered.total() + more
        async with asyncio.timeout(60):
            while self.answered.total() < wanted:  # noqa: ASYNC110 - it happens in other processes
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _client(self, kind: str, index: int) -> None:
        chance = random.Random(f"{kind} {index}")
        connector = aiohttp.TCPConnector(force_close=kind == "fresh")
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
            while not self._stop.is_set():
                began = self._clock.now()
                try:
                    await self._ask(session, kind)
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failed.append(Said(self._clock.now(), f"{kind} {index}", repr(error)))
                self.slowest = max(self.slowest, self._clock.now() - began)
                await asyncio.sleep(chance.uniform(0.0, 0.4))

    async def _ask(self, session: aiohttp.ClientSession, kind: str) -> None:
        stream = kind == "streams"
        body = {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "stream": stream}
        body |= {"max_tokens": STREAMED if stream else 2, "ignore_eos": True}
        async with session.post(f"{self.url}/v1/chat/completions", json=body) as answer:
            text = await answer.text()
        whole = text.rstrip().endswith("data: [DONE]") and text.count('"content"') >= STREAMED if stream else True
        if answer.status == 200 and whole:
            self.answered[kind] += 1
        else:
            told = f"{answer.status} {text[:200]} … {text[-200:]}"
            self.failed.append(Said(self._clock.now(), kind, told, answer.headers.get("Retry-After", "")))


def shown(failed: Sequence[Said]) -> str:
    """For an assertion's message."""
    return json.dumps([(round(one.at % 1000, 2), one.client, one.what) for one in failed[:20]], indent=1)
