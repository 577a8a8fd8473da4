"""Seeded, mixed traffic on a whole relume: bursts and pauses of several models, clients that leave, replicas that are
killed; and what it all leaves behind in the process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.support.faults import HELLO, Stream, Vitals, Whole, follow, replica_pids
from tests.support.running import Running

PATIENCE = 60.0
"""Seconds after which a request that has got nothing counts as lost."""

LEVELS = ("heldRequests", "runningRequests", "replicas")
"""Of a model's status: what is zero when it rests."""


@dataclass
class Seen:
    """What clients got, by kind; what the process used, sample by sample."""

    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    """Requests that got neither an answer nor a typed error nor a visibly broken stream."""
    kills: int = 0
    vitals: list[Vitals] = field(default_factory=list)
    database: list[int] = field(default_factory=list)
    """Bytes of the log with its journal, sample by sample."""


class Mixed:
    """Traffic on `models` for some seconds; the same seed asks for the same."""

    def __init__(self, relume: Running, whole: Whole, models: list[str], seed: int) -> None:
        self.seen = Seen()
        self._relume = relume
        self._whole = whole
        self._models = models
        self._seed = seed

    async def run(self, seconds: float) -> Seen:
        """All of it; returns when the last request has ended."""
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as tasks:
            for model in self._models:
                tasks.create_task(self._bursts(model, until))
            tasks.create_task(self._kills(until))
            tasks.create_task(self._samples(until))
        return self.seen

    async def _bursts(self, model: str, until: float) -> None:
        drawn = random.Random(f"{self._seed}/{model}")
        while _now() < until:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(drawn.choice((1, 1, 2, 5, 12, 30))):
                    tasks.create_task(self._one(model, random.Random(drawn.random())))
                    await asyncio.sleep(drawn.choice((0.0, 0.0, 0.01, 0.1)))
            await asyncio.sleep(drawn.choice((0.0, 0.2, 1.0, 3.0, 6.0)))

    async def _one(self, model: str, drawn: random.Random) -> None:
        """A request: read to its end, or left in the middle."""
        ask = self._stream if drawn.random() < 0.6 else self._plain
        leaves_after = drawn.expovariate(2.0) if drawn.random() < 0.25 else None
        try:
            async with asyncio.timeout(PATIENCE):
                try:
                    async with asyncio.timeout(leaves_after):
                        self.seen.outcomes[await ask(model, drawn.choice((1, 8, 30)))] += 1
                except TimeoutError:
                    if leaves_after is None:
                        raise
                    self.seen.outcomes["left"] += 1
        except TimeoutError:
            self.seen.lost.append(f"{model}: nothing within {PATIENCE} s")

    async def _plain(self, model: str, tokens: int) -> str:
        asked = {"model": model, "messages": HELLO, "max_tokens": tokens}
        try:
            async with self._relume.session.post(f"{self._relume.gateway}/v1/chat/completions", json=asked) as answer:
                body = await answer.json()
        except aiohttp.ClientError:
            return "broken"
        if answer.status == 200 and body.get("choices"):
            return "whole"
        return f"{answer.status} {body['error']['code']}"

    async def _stream(self, model: str, tokens: int) -> str:
        stream = await follow(self._relume, Stream(), model, max_tokens=tokens)
        if stream.whole:
            return "whole"
        if stream.status not in (0, 200):
            return f"{stream.status} of a stream"
        if not stream.visibly_broken:
            self.seen.lost.append(f"{model}: a stream that ends as if it were whole: {stream.data[-2:]}")
        return "broken"

    async def _kills(self, until: float) -> None:
        """kill -9 of a replica every now and then, whatever it does at that moment."""
        drawn = random.Random(f"{self._seed}/kills")
        while _now() < until:
            await asyncio.sleep(drawn.uniform(1.0, 6.0))
            pids = sorted((await replica_pids(self._relume)).values())
            if pids:
                try:
                    os.kill(drawn.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it ended between the question and the kill
                self.seen.kills += 1

    async def _samples(self, until: float) -> None:
        while _now() < until:
            self.seen.vitals.append(self._whole.vitals())
            self.seen.database.append(database_bytes(self._whole.folder))
            await asyncio.sleep(2.0)


def database_bytes(folder: Path) -> int:
    """Bytes of the SQLite log of a relume, with its journal."""
    return sum(path.stat().st_size for path in (folder / "data").glob("events.db*"))


@asynccontextmanager
async def until_quiet(relume: Running, models: list[str], within: float = 30.0) -> AsyncIterator[None]:
    """At the end of the block every model comes to rest: nothing held, nothing running, no replica."""
    yield
    for model in models:
        await relume.until(
            lambda status: not any(status[part] for part in ("heldRequests", "runningRequests", "replicas")),
            model,
            within,
        )
    assert await relume.replicas() == []


def _now() -> float:
    return asyncio.get_running_loop().time()
