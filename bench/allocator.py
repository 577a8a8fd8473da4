"""From a wish in the log to its grant in the log, at 10 to 10,000 models: the whole `Allocator` over the SQLite log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from bench import load
from bench.figures import Effort, Figure, percentile
from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.log import Batch, EventLog, Start
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import Card, CardsObserved
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings

NODE_GPUS = 8
READ_WITHIN = 120.0
SPEC: dict[str, JsonValue] = {
    "resources": {"gpus": 1, "cpu": 1, "memory": "1Gi"},
    "priority": 100,
    "scaling": {"maxReplicas": 4},
}


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds. Each model has one replica on a GPU of its own; then one after the other wishes for two."""
    counts = (10, 100) if effort.quick else (10, 100, 1000, 10_000)
    wishes = effort.size(30, 5)
    figures: list[Figure] = []
    for count in counts:
        waits = await _measure(count, min(wishes, count))
        figures.append(
            Figure(f"wish to grant among {count:,} models, p50", "ms", percentile(waits, 0.5) * 1000,
                   "among the fewest", figures[0].measured if figures else None,
                   low=min(waits) * 1000, high=max(waits) * 1000)
        )  # fmt: skip
    return figures


async def _measure(count: int, wishes: int) -> list[float]:
    names = [f"m{index}" for index in range(count)]
    with load.scratch() as scratch:
        clock = SystemClock()
        hands = EventWriter("bench/hands", clock)
        async with SqliteEventLog(Path(scratch) / "events.db", clock) as log:
            await _declare(log, hands, names)
            allocator = Allocator(log, clock, EventWriter("relume/allocator", clock), AllocatorSettings("bench"))
            running = asyncio.create_task(allocator.run())
            try:
                async with asyncio.timeout(READ_WITHIN):
                    await allocator.caught_up.wait()
                    await _all_granted(log, names)
                return await _wish(log, clock, hands, names[-wishes:])
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def _declare(log: EventLog, hands: EventWriter, names: list[str]) -> None:
    nodes = -(-2 * len(names) // NODE_GPUS)
    said: list[object] = []
    for index in range(nodes):
        cards = tuple(Card(id=f"n{index}-gpu-{card}", virtual=True) for card in range(NODE_GPUS))
        said.append(CardsObserved(node=f"n{index}", cpu=64.0, memory_bytes=1 << 39, cards=cards))
    for name in names:
        said.append(ModelDeclared(model=name, uid="u", revision=1, generation=1, spec=SPEC))
        said.append(wish(name, 1))
    for begin in range(0, len(said), 500):
        await log.append([hands.envelope(one) for one in said[begin : begin + 500]])


async def _all_granted(log: EventLog, names: list[str]) -> None:
    """Return when each model has its first replica: what is measured next stands behind no other work."""
    missing = set(names)
    subscription = log.subscribe((Topic.GRANTS,), Start("newest_per_key"))
    async for batch in subscription:
        granted = (record.envelope.data for record in batch.records)
        missing.difference_update(data.model for data in granted if isinstance(data, GrantDecided) and data.replicas)
        if not missing:
            break
    await subscription.close()


async def _wish(log: EventLog, clock: SystemClock, hands: EventWriter, names: list[str]) -> list[float]:
    subscription = log.subscribe((Topic.GRANTS,), Start("end"))
    batches = aiter(subscription)
    waits = []
    for name in names:
        began = clock.now()
        await log.append([hands.envelope(wish(name, 2))])
        async with asyncio.timeout(30):
            while not await _granted(batches, name):
                pass
        waits.append(clock.now() - began)
    await subscription.close()
    return waits


async def _granted(batches: AsyncIterator[Batch], name: str) -> bool:
    batch = await anext(batches)
    grants = [record.envelope.data for record in batch.records if isinstance(record.envelope.data, GrantDecided)]
    return any(grant.model == name and len(grant.replicas) == 2 for grant in grants)


def wish(name: str, replicas: int) -> WishDecided:
    """What an autoscaler would say."""
    return WishDecided(
        model=name, uid="u", revision=1, replicas=replicas, priority=100, reasons=("edge",), snapshot={}, policy={},
        memory={},
    )  # fmt: skip
