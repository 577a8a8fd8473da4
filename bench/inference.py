"""Asynchronous requests end to end through a real `relume up`: CPU of its process for one, beside one by HTTP.

End to end: told to the admin port, read, given a slot, sent to a make-believe engine, answered in one transaction with
its offset. The yardstick is the same request by HTTP in the same process.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from bench import load
from bench.figures import Effort, Figure, median
from bench.relume_up import Relume, model, relume_up

COUNT = 5000
PORTION = 500
SLOTS = 32
WITHIN = 180.0
MILLI = 1000.0


async def run(effort: Effort) -> list[Figure]:
    """CPU milliseconds a request, and requests a second."""
    count = effort.size(COUNT, 100)
    with load.scratch() as scratch:
        async with relume_up(Path(scratch) / "up", model(slots=SLOTS)) as relume:
            await relume.wake()
            rounds = [await _round(relume, number, count) for number in range(effort.rounds)]
    ours, theirs, rates = zip(*rounds, strict=True)
    what = f"an asynchronous request, one of {count:,}"
    return [
        Figure(f"{what}, CPU", "ms", median(ours), "the same by HTTP", median(theirs), low=min(ours), high=max(ours)),
        Figure(f"{what}, a second (wall)", "1/s", median(rates), low=min(rates), high=max(rates)),
    ]


async def _round(relume: Relume, number: int, count: int) -> tuple[float, float, float]:
    used, began = relume.cpu_seconds(), time.perf_counter()
    await _asynchronously(relume, number, count)
    ours, took = relume.cpu_seconds() - used, time.perf_counter() - began
    used = relume.cpu_seconds()
    await _by_http(relume, count)
    theirs = relume.cpu_seconds() - used
    return ours / count * MILLI, theirs / count * MILLI, count / took


def _body(number: int) -> dict[str, object]:
    return {"model": "bench", "messages": [{"role": "user", "content": f"hello {number}"}]}


async def _asynchronously(relume: Relume, number: int, count: int) -> None:
    query = [("from", "now"), ("follow", "true"), ("topic", "relume.inference.results")]
    async with asyncio.timeout(WITHIN), relume.session.get(f"{relume.admin}/events", params=query) as answers:
        for first in range(0, count, PORTION):
            events = [
                {"specversion": "1.0", "id": f"{number}-{at}", "source": "//bench", "partitionkey": "bench",
                 "type": "relume.inference.requested.v1", "data": {"body": _body(at)}}
                for at in range(first, min(first + PORTION, count))
            ]  # fmt: skip
            headers = {"Content-Type": "application/cloudevents-batch+json"}
            async with relume.session.post(f"{relume.admin}/events", data=json.dumps(events), headers=headers) as told:
                told.raise_for_status()
        missing = count
        while missing:
            await answers.content.readline()
            missing -= 1


async def _by_http(relume: Relume, count: int) -> None:
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=_body(number)) as answer:
                answer.raise_for_status()
                await answer.read()

    await asyncio.gather(*(client() for _ in range(SLOTS)))
