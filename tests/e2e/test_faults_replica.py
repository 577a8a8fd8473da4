"""A replica is killed under a whole relume: in the middle of a stream, before the first byte, while it loads."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path

import pytest

from tests.support.faults import HELLO, Stream, cli, follow, kill_engines, replica_pids
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

LONG = "startTime: 200ms, timeToFirstToken: 10ms, interTokenLatency: 50ms, maxTokens: 400"


async def test_killed_in_the_middle_of_streams(tmp_path: Path) -> None:
    """Each of four streams ends in an error object as its last event, never in [DONE]; then the model answers again."""
    async with running(tmp_path, simulated(options=LONG)) as relume:
        streams = [Stream() for _ in range(4)]
        tasks = [asyncio.create_task(follow(relume, stream)) for stream in streams]
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        killed = await kill_engines(relume)
        assert killed
        await asyncio.gather(*tasks)
        for stream in streams:
            assert stream.status == 200
            assert stream.visibly_broken
            assert not stream.whole
            assert stream.error is not None
            assert stream.error["code"] == "replica_failed"
        assert (await relume.chat(max_tokens=2)).status == 200
        assert not set(killed) & set((await replica_pids(relume)).values())


async def test_killed_at_every_try(tmp_path: Path) -> None:
    """Requests whose replica is killed wherever they are sent are told so in the end: an error object, and no answer
    that is cut."""
    async with running(tmp_path, simulated(options="startTime: 50ms, hangRate: 100", maxReplicas=1)) as relume:
        asked = [asyncio.create_task(relume.chat()) for _ in range(3)]
        killed: set[int] = set()
        async with asyncio.timeout(60):
            while not all(one.done() for one in asked):
                if (await relume.status())["runningRequests"]:
                    killed |= set(await kill_engines(relume))
                await asyncio.sleep(0.05)
        assert len(killed) == 3
        for answer in await asyncio.gather(*asked):
            assert answer.status in (502, 503)
            error = (await answer.json())["error"]
            assert error["code"] in ("replica_unreachable", "model_start_failed")
            assert error["message"]


async def test_killed_before_the_first_byte(tmp_path: Path) -> None:
    """Requests on a replica that is killed before it said anything are answered by the next one, each exactly once."""
    options = "startTime: 300ms, timeToFirstToken: 1500ms, interTokenLatency: 1ms, maxTokens: 2"
    async with running(tmp_path, simulated(options=options, extra="  slots: 8", maxReplicas=1)) as relume:
        done: collections.Counter[str] = collections.Counter()

        async def ask(name: str) -> int:
            headers = {"x-request-id": name}
            body = {"model": "echo", "messages": HELLO}
            url = f"{relume.gateway}/v1/chat/completions"
            async with relume.session.post(url, json=body, headers=headers) as answer:
                await answer.read()
                done[name] += 1
                return answer.status

        tasks = [asyncio.create_task(ask(f"r{number}")) for number in range(8)]
        await relume.until(lambda status: status["runningRequests"] == 8)
        killed = await kill_engines(relume)
        assert len(killed) == 1
        assert await asyncio.gather(*tasks) == [200] * 8
        assert set(done.values()) == {1}
        (replica,) = [one for one in await relume.replicas() if one["status"]["state"] == "Ready"]
        assert replica["status"]["pid"] not in killed
        stats = await relume.engine_stats(replica["status"]["address"])
        assert stats["duplicates"] == 0


async def test_killed_while_loading(tmp_path: Path) -> None:
    """Requests that are held for a replica that is killed while it loads are served by the next start."""
    options = "startTime: 1500ms, timeToFirstToken: 5ms, maxTokens: 2"
    async with running(tmp_path, simulated(options=options)) as relume:
        tasks = [asyncio.create_task(relume.chat()) for _ in range(4)]
        await _loading(relume)
        killed = await kill_engines(relume)
        assert killed
        answers = await asyncio.gather(*tasks)
        assert [answer.status for answer in answers] == [200] * 4
        assert all(answer.headers["x-relume-cold-start"] == "true" for answer in answers)
        assert not set(killed) & set((await replica_pids(relume)).values())


async def test_crashes_again_and_again(tmp_path: Path) -> None:
    """An engine that crashes at every third request: requests are answered by the next one, until three starts in a row
    broke; then they are told so, with the exit code and when to come back."""
    options = (
        "startTime: 50ms, timeToFirstToken: 20ms, interTokenLatency: 5ms, maxTokens: 4, crashAfter: 2, exitCode: 7"
    )
    async with running(tmp_path, simulated(options=options, maxReplicas=1)) as relume:
        answered = 0
        while (answer := await relume.chat()).status == 200 and answered < 20:
            answered += 1
        assert answered >= 4  # two of each of the replicas that came up before the third crash
        assert answer.status == 503
        error = (await answer.json())["error"]
        assert error["code"] == "model_start_failed"
        assert "7" in error["message"]
        assert int(answer.headers["Retry-After"]) >= 1
        told = await cli(relume, "describe", "model", "echo")
        assert told.code == 0
        assert "Traceback" not in told.err


async def _loading(relume: Running) -> None:
    """Wait for an engine that has a process and is not ready."""
    for _ in range(600):
        if await replica_pids(relume):
            assert (await relume.status())["readyReplicas"] == 0
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no replica was started")
