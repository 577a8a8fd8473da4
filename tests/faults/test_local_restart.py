"""kill -9 of a whole relume with running replicas, and its start on the same folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from deploy.local.folder import open_folder
from deploy.local.stale import find_marked
from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.log import Query
from events.names import Topic
from events.types.replicas import ReplicasObserved, ReplicaState
from tests.support.local_cluster import PATIENCE, until_dead

PROGRAM = """
import asyncio, pathlib, sys
sys.path.insert(0, {root!r})
from deploy.local.cluster import LocalCluster
from deploy.local.folder import open_folder
from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.writer import EventWriter
from tests.support.local_cluster import FAST, Stage, engine

async def main():
    folder, clock = open_folder(pathlib.Path({folder!r})), SystemClock()
    async with SqliteEventLog(folder.path / "events.db", clock) as log:
        cluster = LocalCluster(log, EventWriter("relume/cluster", clock), clock, folder, FAST)
        if sys.argv[1] == "first":
            stage = Stage.__new__(Stage)
            stage.log, stage.writer = log, EventWriter("relume/test", clock)
            await stage.declare(engine("--ignore-sigterm"))
            await stage.grant(0, 1)
        await cluster.start()
        while cluster.stats().ready < 2:
            await asyncio.sleep(0.01)
        await cluster._publisher.wait_idle()
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def relume(folder: Path, run: str) -> asyncio.subprocess.Process:
    """A relume on this folder, with two ready replicas."""
    program = PROGRAM.format(root=str(Path(__file__).parents[2]), folder=str(folder))
    made = await asyncio.create_subprocess_exec(sys.executable, "-c", program, run, stdout=asyncio.subprocess.PIPE)
    assert made.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await made.stdout.readline() == b"ready\n"
    return made


async def pids_of(folder: Path) -> set[int]:
    """Two engines and their shims, found by their marks."""
    found = {process.pid for process in await asyncio.to_thread(find_marked, str(folder))}
    assert len(found) == 4
    return found


async def newest(folder: Path) -> ReplicasObserved:
    """The last state that the log of a dead relume holds."""
    held = open_folder(folder)
    try:
        async with SqliteEventLog(folder / "events.db", SystemClock()) as log:
            states = [record.envelope.data async for record in log.read(Query(topic=Topic.REPLICAS))]
    finally:
        held.close()
    last = states[-1]
    assert isinstance(last, ReplicasObserved)
    return last


@pytest.mark.slow
async def test_killed_and_started_again(tmp_path: Path) -> None:
    """After kill -9 all is gone in two seconds, though the engines ignore SIGTERM; the next start has them again."""
    folder = tmp_path / "data"
    first = await relume(folder, "first")
    pids = await pids_of(folder)
    first.kill()
    await first.wait()
    await until_dead(pids, 2.0)
    assert [one.state for one in (await newest(folder)).replicas] == [ReplicaState.READY] * 2
    second = await relume(folder, "second")
    again = await pids_of(folder)
    assert not again & pids
    second.kill()
    await second.wait()
    await until_dead(again, 2.0)
    last = await newest(folder)
    assert [(one.state, one.pid in again) for one in last.replicas] == [(ReplicaState.READY, True)] * 2
