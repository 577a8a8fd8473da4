"""5,000 requests that wait for a model: what one costs in memory, and how fast they are served once it is ready."""

from __future__ import annotations

import time
from pathlib import Path

from bench import clients, load, machine, seen
from bench.clients import Crowd, until
from bench.figures import Effort, Figure, Target
from bench.relume_up import Relume, model, relume_up

REQUESTS = 5000
BODY = 4096
SLOTS = 64
KIB = 1024.0
TELLING = 2000
"""Requests: their bodies are then 8 MB, a few times what is free in a relume that has just started."""


async def run(effort: Effort) -> list[Figure]:
    """KiB a request, and seconds."""
    count = effort.size(REQUESTS, 100)
    allowed = load.raise_descriptors()
    if allowed < count + 500:
        return [Figure(f"{count:,} held requests", why=f"only {allowed} open files are allowed; see ulimit -n")]
    with load.scratch() as scratch:
        document = model(slots=SLOTS, able_after=effort.size(15, 2))
        async with relume_up(Path(scratch) / "up", document) as relume:
            return await _measure(relume, count)


async def _measure(relume: Relume, count: int) -> list[Figure]:
    before = machine.memory_bytes(relume.pid)
    crowd = Crowd(relume.address, clients.request("127.0.0.1", clients.body(BODY)))
    try:
        await crowd.ask(count)
        await _until_held(relume, count)
        grown = machine.memory_bytes(relume.pid) - before
        await crowd.whole(within=120)
        ready_at = (await seen.activations(relume))["bench"].ready_at
        assert ready_at is not None
        drained = max(crowd.answered_at) - ready_at
        again = await _once_more(crowd, count)
    finally:
        crowd.close()
    what = f"{count:,} held requests"
    return [
        _memory(f"{what}, memory of one besides its body", count, grown),
        Figure(f"{what}, ready to the last answer, {SLOTS} slots", "s", drained, "the same requests, warm", again),
    ]  # fmt: skip


def _memory(what: str, count: int, grown: int) -> Figure:
    """Of one request, when they are too many to lie in what the process had free before."""
    if count < TELLING:
        return Figure(what, "KiB", why=f"fewer than {TELLING} lie in memory that the process had free already")
    each = grown / count - BODY
    return Figure(what, "KiB", each / KIB, "its body", BODY / KIB, target=Target(8.0))


async def _until_held(relume: Relume, count: int) -> None:
    async def all_held() -> bool:
        async with relume.session.get(f"{relume.admin}/models/bench") as answer:
            return bool((await answer.json())["status"]["heldRequests"] == count)

    await until(all_held, 30)


async def _once_more(crowd: Crowd, count: int) -> float:
    """Seconds for the same requests on the same connections, all at once, now that the model is warm."""
    began = time.time()
    crowd.again()
    await crowd.whole(within=120)
    assert len(crowd.answered_at) == count
    return max(crowd.answered_at) - began
