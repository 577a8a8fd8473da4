"""kill -9 of a whole relume, and its next start on the same folder; and those that cannot start at all."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.demo.server import PROGRAM
from tests.support.faults import Stream, Whole, cli, faulty, follow, nothing_left, recorded
from tests.support.local_cluster import until_dead
from tests.support.openai_clients import together
from tests.support.running import Running, asking, complaints, processes_of, simulated

pytestmark = pytest.mark.slow

GONE = 3.0
"""Seconds in which every process of a killed relume must be gone."""

SLOW = "startTime: 200ms, timeToFirstToken: 10ms, interTokenLatency: 50ms, maxTokens: 1000"


async def test_with_held_and_running_requests(tmp_path: Path) -> None:
    """Nothing is left within three seconds; the next start knows the models, loses nothing of the log, restores the
    wish before it shrinks anything, and answers."""
    documents = together(
        simulated(options=SLOW, keepAlive="60s", stableWindow="60s"), simulated("never", options="startTime: 60s")
    )
    whole = Whole(tmp_path, documents)
    await whole.start()
    async with asking(whole, tmp_path) as relume:
        streams = [Stream() for _ in range(8)]  # two replicas of four slots
        running = [asyncio.create_task(follow(relume, stream)) for stream in streams]
        held = [asyncio.create_task(relume.chat("never")) for _ in range(3)]
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        await relume.until(lambda status: status["readyReplicas"] >= 2 and status["runningRequests"] == 8)
        await relume.until(lambda status: status["heldRequests"] == 3, "never")
        before = await recorded(relume, "relume.decisions", "wish.decided")
        wish = (await relume.status())["wish"]
        assert wish >= 2
        pids = [process.pid for process in processes_of(tmp_path)]
        assert len(pids) >= 6  # two replicas and one that loads, each with its shim
        await whole.killed()
        await nothing_left(tmp_path, GONE)
        await until_dead(pids, GONE)  # one that is ending has no environment any more, by which it is found
        await asyncio.gather(*running)
        assert all(stream.visibly_broken and not stream.whole for stream in streams)
        for answer in await asyncio.gather(*held, return_exceptions=True):
            assert isinstance(answer, aiohttp.ClientError)
    assert complaints(whole.log) == ""

    async with faulty(Whole(tmp_path, "")) as relume:
        listed = [item["metadata"]["name"] for item in await _models(relume)]
        assert listed == ["echo", "never"]
        after = await recorded(relume, "relume.decisions", "wish.decided")
        assert [event["id"] for event in after[: len(before)]] == [event["id"] for event in before]
        await relume.until(lambda status: status["readyReplicas"] >= wish)
        again = [event for event in after if event["data"]["model"] == "echo"][-1]
        assert again["data"]["replicas"] >= wish
        assert (await relume.chat(max_tokens=3)).status == 200
        newer = [
            event["data"]["replicas"]
            for event in (await recorded(relume, "relume.decisions", "wish.decided"))[len(before) :]
            if event["data"]["model"] == "echo"
        ]
        assert all(replicas >= wish for replicas in newer)


async def test_killed_again_and_again(tmp_path: Path) -> None:
    """Killed at any moment of its start, and in the middle of work, it comes up again each time and answers."""
    document = simulated(keepAlive="60s")
    for seconds in (0.4, 0.8, 1.2, 1.6):
        whole = Whole(tmp_path, document)
        starting = asyncio.create_task(whole.start())
        await asyncio.sleep(seconds)
        await whole.killed()
        await asyncio.gather(starting, return_exceptions=True)
        await nothing_left(tmp_path, GONE)
        assert complaints(whole.log) == ""
    for _ in range(2):
        whole = Whole(tmp_path, document)
        await whole.start()
        async with asking(whole, tmp_path) as relume:
            assert (await relume.chat()).status == 200
            asked = [asyncio.create_task(relume.chat()) for _ in range(20)]
            await asyncio.sleep(0.05)
            await whole.killed()
            await asyncio.gather(*asked, return_exceptions=True)
        await nothing_left(tmp_path, GONE)
    async with faulty(Whole(tmp_path, "")) as relume:
        assert (await relume.chat()).status == 200
        item = (await _models(relume))[0]
        assert item["metadata"]["generation"] == 1  # declared again and again, never changed


async def test_a_second_one_on_the_same_folder(tmp_path: Path) -> None:
    """It is refused in one line with the first one's pid and exit code 1; the first goes on undisturbed."""
    first = Whole(tmp_path, simulated())
    async with faulty(first) as relume:
        assert (await relume.chat()).status == 200
        where = (tmp_path / "data" / "endpoints.json").read_text()
        code, said = await _up(tmp_path / "data")
        assert code == 1
        assert str(first.pid) in said
        assert len(said.splitlines()) == 1
        assert "--data-dir" in said
        assert (tmp_path / "data" / "endpoints.json").read_text() == where
        assert (await relume.chat()).status == 200


@pytest.mark.parametrize("port", ["--gateway-port", "--admin-port"])
async def test_a_port_that_is_taken(tmp_path: Path, port: str) -> None:
    """One line that names the port and what to do, exit code 1, no process left, and the folder is free again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        manifest = tmp_path / "models.yaml"
        manifest.write_text(simulated(minReplicas=1))
        code, said = await _up(tmp_path / "data", "-f", str(manifest), port, str(number))
    assert code == 1
    lines = [line for line in said.splitlines() if " INFO " not in line]
    assert len(lines) == 1, said
    assert str(number) in lines[0]
    assert port in lines[0]
    await nothing_left(tmp_path)
    async with faulty(Whole(tmp_path, simulated())) as relume:
        assert (await relume.chat()).status == 200


async def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    """A data folder that is a file, that cannot be made, or an event log that is none: one line, exit code 1."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "events.db").write_bytes(b"this is not a database" * 400)
    for folder, word in (("file", "file"), ("file/data", "file"), ("bad", "events.db"), ("/proc/relume", "/proc")):
        code, said = await _up(tmp_path / folder)
        assert code == 1, said
        lines = [line for line in said.splitlines() if " INFO " not in line]
        assert len(lines) == 1, said
        assert word in lines[0]
        assert "Traceback" not in said


async def _up(folder: Path, *arguments: str) -> tuple[int, str]:
    """A `relume up` that is expected to end by itself; its exit code and what it said."""
    ports = ["--gateway-port", "0", "--admin-port", "0"]
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "up", "--data-dir", str(folder), *ports, *arguments, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(30):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode()


async def _models(relume: Running) -> list[dict[str, Any]]:
    told = await cli(relume, "get", "models", "-o", "json")
    assert told.code == 0, told.err
    items: list[dict[str, Any]] = json.loads(told.out)["items"]
    return items
