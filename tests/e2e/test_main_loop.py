"""The main loop in one real process, with simulated engines: zero, wake, grow, shrink, zero."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path

import pytest

from tests.support.running import processes_of, running, simulated

pytestmark = pytest.mark.slow


async def test_from_zero_and_back(tmp_path: Path) -> None:
    """A request wakes a model that has no replica, is answered, and the model goes back to zero by itself."""
    async with running(tmp_path, simulated()) as relume:
        assert (await relume.status())["state"] == "Zero"
        answer = await relume.chat()
        assert answer.status == 200
        assert answer.headers["x-relume-cold-start"] == "true"
        assert int(answer.headers["x-relume-held-ms"]) >= 300
        assert (await relume.chat()).headers["x-relume-cold-start"] == "false"
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0)
        assert (await relume.chat()).status == 200
    assert processes_of(tmp_path) == []


async def test_a_second_activation_right_after_zero(tmp_path: Path) -> None:
    """A request that comes while the last replica drains, stops, or is just gone, is served, each time."""
    async with running(tmp_path, simulated(keepAlive="200ms", stableWindow="1s")) as relume:
        for _ in range(8):
            assert (await relume.chat()).status == 200
            await relume.until(lambda status: status["readyReplicas"] == 0)
            await asyncio.sleep(0.01)


async def test_a_thousand_requests_to_a_model_at_zero(tmp_path: Path) -> None:
    """None lost, none sent twice, slots never exceeded, and order kept within a caller."""
    document = simulated(
        extra="  slots: 8", options="startTime: 300ms, timeToFirstToken: 1ms, interTokenLatency: 0ms, maxTokens: 1"
    )
    async with running(tmp_path, document) as relume:
        done: list[tuple[str, int]] = []

        async def ask(caller: str, number: int) -> int:
            headers = {"Authorization": f"Bearer {caller}", "x-request-id": f"{caller}-{number}"}
            body = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
            async with relume.session.post(
                f"{relume.gateway}/v1/chat/completions", json=body, headers=headers
            ) as answer:
                await answer.read()
                done.append((caller, number))
                return answer.status

        tasks = []
        for number in range(250):
            tasks += [asyncio.create_task(ask(f"caller{which}", number)) for which in range(4)]
            if number % 25 == 0:
                await asyncio.sleep(0)
        statuses = collections.Counter(await asyncio.gather(*tasks))
        assert statuses == {200: 1000}
        stats = [await relume.engine_stats(item["status"]["address"]) for item in await relume.replicas()]
        assert max(one["peak"] for one in stats) <= 8
        assert sum(one["duplicates"] for one in stats) == 0
        assert len(done) == len(set(done)) == 1000


async def test_load_grows_and_shrinks_the_replicas(tmp_path: Path) -> None:
    """A burst of 16 over replicas of 4 slots brings four replicas in one step; afterwards they go, none in a hurry."""
    slow = "startTime: 200ms, timeToFirstToken: 200ms, interTokenLatency: 20ms, maxTokens: 16"
    async with running(tmp_path, simulated(options=slow)) as relume:
        stop = asyncio.Event()

        async def client() -> None:
            while not stop.is_set():
                assert (await relume.chat()).status == 200

        clients = [asyncio.create_task(client()) for _ in range(16)]
        await relume.until(lambda status: status["readyReplicas"] == 4)
        stop.set()
        await asyncio.gather(*clients)
        await relume.until(lambda status: status["replicas"] == 0)
