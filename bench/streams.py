"""CPU of the data port per streamed chunk: 200 streams of 20 events a second, each about 200 bytes."""

from __future__ import annotations

import asyncio
import time

from bench import clients
from bench.clients import Crowd, Wrong
from bench.figures import Effort, Figure, Target, median
from bench.gateway import HAPROXY, field
from bench.peers.process import Proxy

EVERY = 0.05
"""Seconds between the chunks of a stream."""
GATES = {HAPROXY: Target(1.4, 1.1, of_ratio=True)}
"""Design §11."""


async def run(effort: Effort) -> list[Figure]:
    """CPU microseconds a chunk."""
    streams = effort.size(200, 20)
    async with field() as contenders:
        await _stretch(contenders.relume, streams, 0.5)
        taken: dict[str, list[float]] = {}
        for _ in range(effort.rounds):
            for proxy in (contenders.relume, *contenders.peers):
                taken.setdefault(proxy.name, []).append(await _stretch(proxy, streams, effort.seconds))
    mine = taken.pop(contenders.relume.name)
    what = f"streamed chunk, {streams} streams of {1 / EVERY:.0f}/s"
    figures = [
        Figure(what, "us CPU", median(mine), name, median(each), GATES.get(name), min(mine), max(mine))
        for name, each in taken.items()
    ]
    return figures + [
        Figure(what, yardstick=name, target=GATES.get(name), why=why) for name, why in contenders.absent.items()
    ]


async def _stretch(proxy: Proxy, streams: int, seconds: float) -> float:
    """CPU microseconds a chunk while all streams go on: neither their start nor their end is in it."""
    chunks = round((seconds + 4.0) / EVERY)
    path = f"/v1/chat/completions?chunks={chunks}&every={EVERY}"
    crowd = Crowd(proxy.address, clients.request("127.0.0.1", clients.body(stream=True), path))
    try:
        await crowd.ask(streams)
        await asyncio.sleep(0.5)
        cpu, seen, began = proxy.cpu_seconds(), crowd.chunks, time.monotonic()
        await asyncio.sleep(seconds)
        used, relayed, passed = proxy.cpu_seconds() - cpu, crowd.chunks - seen, time.monotonic() - began
    finally:
        crowd.close()
    wanted = streams * passed / EVERY
    if not 0.8 * wanted <= relayed <= 1.2 * wanted:
        raise Wrong(f"{proxy.name} relayed {relayed} chunks where {wanted:.0f} were sent: not the load that is meant")
    await asyncio.sleep(0.2)  # the closed connections are worked off before the next one is measured
    return used / relayed * 1e6
