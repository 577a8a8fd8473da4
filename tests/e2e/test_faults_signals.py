"""SIGTERM, SIGINT, and a second one, to a whole relume in every state: what its requests get, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.support.faults import Stream, Whole, faulty, follow, nothing_left
from tests.support.local_cluster import alive
from tests.support.openai_clients import together
from tests.support.running import Running, asking, complaints, processes_of, simulated
from tests.support.waiting import until

pytestmark = pytest.mark.slow

STREAMING = "startTime: 100ms, timeToFirstToken: 10ms, interTokenLatency: 50ms, maxTokens: 40"  # about 2 s
ENDLESS = "startTime: 100ms, timeToFirstToken: 10ms, interTokenLatency: 100ms, maxTokens: 2000"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_held_and_running_requests(tmp_path: Path, number: signal.Signals) -> None:
    """Held requests get 503 with Retry-After; running streams end whole; then exit code 0, and no process is left."""
    documents = together(simulated(options=STREAMING), simulated("never", options="startTime: 60s"))
    whole = Whole(tmp_path, documents)
    async with faulty(whole) as relume:
        streams = [Stream() for _ in range(3)]
        running = [asyncio.create_task(follow(relume, stream)) for stream in streams]
        held = [asyncio.create_task(relume.chat("never")) for _ in range(5)]
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        await relume.until(lambda status: status["heldRequests"] == 5, "never")
        whole.signal(number)
        for answer in await asyncio.gather(*held):
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.headers["x-should-retry"] == "true"
            error = (await answer.json())["error"]
            assert error["code"] == "gateway_shutting_down"
            assert error["type"] == "service_unavailable"
        assert whole.code is None  # it waits for the streams
        await asyncio.gather(*running)
        assert all(stream.whole for stream in streams)
        assert {len(stream.data) for stream in streams} == {len(streams[0].data)}
        assert await whole.ended(20) == 0
        await nothing_left(tmp_path)


async def test_new_connections_are_refused_while_it_drains(tmp_path: Path) -> None:
    """Who comes after the signal is refused: no connection, or 503; the stream that runs is not disturbed."""
    whole = Whole(tmp_path, simulated(options=STREAMING))
    async with faulty(whole) as relume:
        stream = Stream()
        running = asyncio.create_task(follow(relume, stream))
        await stream.begun.wait()
        whole.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        with contextlib.suppress(aiohttp.ClientError):  # nobody listens any more
            assert (await relume.chat()).status == 503
        await running
        assert stream.whole
        assert await whole.ended(20) == 0


async def test_a_stream_longer_than_the_bound(tmp_path: Path) -> None:
    """A stream that would go on beyond the bound is broken off visibly, and the end is still in order."""
    whole = Whole(tmp_path, simulated(options=ENDLESS), "--drain-bound", "1s")
    async with faulty(whole) as relume:
        stream = Stream()
        running = asyncio.create_task(follow(relume, stream))
        await stream.begun.wait()
        whole.signal(signal.SIGTERM)
        await running
        assert stream.visibly_broken
        assert not stream.whole
        assert await whole.ended(20) == 0


async def test_a_second_signal(tmp_path: Path) -> None:
    """The second signal means it: relume ends at once, by the signal, and its engines end with it."""
    whole = Whole(tmp_path, simulated(options=ENDLESS))
    async with faulty(whole) as relume:
        stream = Stream()
        running = asyncio.create_task(follow(relume, stream))
        await stream.begun.wait()
        whole.signal(signal.SIGTERM)
        await until(lambda: "shutting down" in whole.said, 10)
        assert whole.code is None
        whole.signal(signal.SIGTERM)
        assert await whole.ended(3) == -signal.SIGTERM
        await running
        assert stream.visibly_broken
        await nothing_left(tmp_path)


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.6, 0.9, 1.2, 1.6])
async def test_during_start_up(tmp_path: Path, seconds: float) -> None:
    """A signal at any moment of the start ends it: 0 once signals are looked after, by the signal before; no process,
    no traceback, and the folder can be used again."""
    always = simulated(minReplicas=1)
    whole = Whole(tmp_path, always)
    starting = asyncio.create_task(whole.start())
    await asyncio.sleep(seconds)
    whole.signal(signal.SIGTERM)
    assert await whole.ended(20) in (0, -signal.SIGTERM)
    await asyncio.gather(starting, return_exceptions=True)
    await nothing_left(tmp_path)
    assert complaints(whole.log) == ""


async def test_while_a_replica_loads(tmp_path: Path) -> None:
    """A replica that loads is ended too, at once; the request that waits for it is told."""
    whole = Whole(tmp_path, simulated(options="startTime: 60s"))
    async with faulty(whole) as relume:
        held = asyncio.create_task(relume.chat())
        pids = await _started(relume)
        whole.signal(signal.SIGTERM)
        assert (await held).status == 503
        assert await whole.ended(20) == 0  # far from the start time
        assert not any(alive(pid) for pid in pids)


async def test_an_engine_that_does_not_end(tmp_path: Path) -> None:
    """An engine that takes a minute to stop is killed: the end of relume does not wait for it."""
    whole = Whole(tmp_path, simulated(options="startTime: 50ms, stopTime: 60s"))
    async with faulty(whole) as relume:
        assert (await relume.chat()).status == 200
        whole.signal(signal.SIGTERM)
        assert await whole.ended(20) == 0
        await nothing_left(tmp_path)


async def test_again_on_the_same_folder(tmp_path: Path) -> None:
    """After an end in order the next start knows what was declared, without a file, and answers."""
    async with faulty(Whole(tmp_path, simulated())) as relume:
        assert (await relume.chat()).status == 200
    again = Whole(tmp_path, "")
    await again.start()
    async with asking(again, tmp_path) as relume:
        assert (await relume.chat()).status == 200
    assert await again.stop() == 0
    assert complaints(again.log) == ""


async def _started(relume: Running) -> list[int]:
    """Pids of the processes of a model that is starting."""
    for _ in range(600):
        if len(found := processes_of(relume.folder)) >= 2:  # the shim and the engine
            return [process.pid for process in found]
        await asyncio.sleep(0.02)
    raise AssertionError("no replica was started")
