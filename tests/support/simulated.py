"""The simulated engine inside the test's own process, and small clients for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from events.clock import SystemClock
from runtime.engines.simulated.server import SimulatedServer
from runtime.engines.simulated.settings import parse


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes
    headers: dict[str, str]
    """By lower-case name."""

    @classmethod
    async def of(cls, answer: aiohttp.ClientResponse) -> Reply:
        headers = {name.lower(): text for name, text in answer.headers.items()}
        return cls(answer.status, await answer.read(), headers)

    @property
    def parsed(self) -> dict:
        return json.loads(self.body)


class Client:
    """Asks the engine at `url`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    async def get(self, path: str) -> Reply:
        async with self.session.get(self.url + path) as answer:
            return await Reply.of(answer)

    async def post(self, path: str, body: object, **headers: str) -> Reply:
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            return await Reply.of(answer)

    async def stats(self, query: str = "") -> dict:
        return (await self.get(f"/stats{query}")).parsed

    async def until(self, **wanted: object) -> dict:
        """The stats once they have these values; fails after twenty seconds."""
        async with asyncio.timeout(20):
            while True:
                stats = await self.stats()
                if all(stats[key] == value for key, value in wanted.items()):
                    return stats
                await asyncio.sleep(0.005)


@asynccontextmanager
async def simulated(*flags: str) -> AsyncIterator[Client]:
    """A ready engine with these flags on a free port."""
    settings = parse(["--model", "sim", "--port", "0", "--seed", "7", *flags])
    server = SimulatedServer(settings, SystemClock(), lambda line: None)
    await server.start()
    try:
        await server.load(asyncio.Event())
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Client(f"http://127.0.0.1:{server.port}", session)
    finally:
        await server.close()


def completion(**more: object) -> dict:
    """A completion's body."""
    return {"model": "sim", "prompt": "one two three"} | more


def events_of(body: bytes) -> list[str]:
    """The data of each server-sent event."""
    return [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
