"""A replica serves on when its relume is killed, if it has a door, and the next relume takes it over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.adopting import Survivor, survivors
from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.folder import DataFolder, open_folder
from deploy.local.logs import tail
from deploy.local.stale import kill_marked
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus
from events.writer import EventWriter
from tests.support.local_cluster import alive, until_dead

NAME = "echo-r1-0"
ROOT = Path(__file__).parents[2]

RELUME = textwrap.dedent("""
    import asyncio, pathlib, sys
    sys.path.insert(0, {root!r})
    from deploy.local.process import Door, Order, start_process
    folder = pathlib.Path({folder!r})
    async def main():
        door = Door(folder / "doors" / {name!r}, {open_for})
        log = folder / "logs" / ({name!r} + ".log")
        order = Order(argv={argv!r}, env={env!r}, log_path=log, header="===", orphan_grace=0.2, door=door)
        process = await start_process(order)
        print(process.pid, process.shim_pid, flush=True)
        await asyncio.sleep(600)
    asyncio.run(main())
""")
"""A relume that starts one replica."""

ENGINE = "import sys, time\nfor n in range(10**9):\n    print(n, flush=True)\n    time.sleep(0.05)"


@dataclass
class Started:
    """A relume, its replica's engine and shim."""

    relume: subprocess.Popen[str]
    engine: int
    shim: int

    def kill(self) -> None:
        self.relume.kill()
        self.relume.wait()
        assert self.relume.stdout is not None
        self.relume.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    """A data folder that is deeper than a socket's address may be long; nothing of it is left running."""
    folder = open_folder(tmp_path / ("deep" * 30))
    yield folder
    left = kill_marked(folder.mark)
    folder.close()
    assert left == []


def start(folder: DataFolder, engine: str = ENGINE, open_for: float = 60.0) -> Started:
    env = {"PATH": os.environ["PATH"], MARK_REPLICA: NAME, MARK_DATA: folder.mark}
    argv = (sys.executable, "-c", engine)
    text = RELUME.format(root=str(ROOT), folder=str(folder.path), name=NAME, open_for=open_for, argv=argv, env=env)
    relume = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert relume.stdout is not None
    engine_pid, shim = relume.stdout.readline().split()
    return Started(relume, int(engine_pid), int(shim))


async def found(folder: DataFolder, pid: int, state: ReplicaState = ReplicaState.READY) -> dict[str, Survivor]:
    """The survivors, when the log says that the replica is in this state, with this pid."""
    clock = SystemClock()
    async with MemoryEventLog(clock) as log:
        status = ReplicaStatus(replica=NAME, uid="u", revision=1, state=state, node="local", pid=pid, ready_at=1.0)
        observed = ReplicasObserved(model="echo", uid="u", replicas=(status,))
        await log.append([EventWriter("relume/test", clock).envelope(observed)])
        return await survivors(log, folder, "local")


async def test_a_survivor_is_taken_over_again_and_again(folder: DataFolder) -> None:
    """Its pid is the same, its output goes on, its end is heard; the next relume may die too."""
    started = start(folder)
    started.kill()
    for _ in range(2):
        survivor = (await found(folder, started.engine))[NAME]
        assert (survivor.model, survivor.process.pid, survivor.process.shim_pid) == (
            "echo",
            started.engine,
            started.shim,
        )
        last = tail(folder.logs / f"{NAME}.log", 1)
        async with asyncio.timeout(20):
            while tail(folder.logs / f"{NAME}.log", 1) == last:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)
        assert survivor.process._shim.stdin is not None
        survivor.process._following.cancel()  # this relume "dies": nothing of it acts, and its connection closes
        survivor.process._shim.stdin.close()
        await survivor.process._shim.stdin.wait_closed()
    survivor = (await found(folder, started.engine))[NAME]
    survivor.process.terminate()
    assert (await asyncio.wait_for(survivor.process.wait_gone(), 20)).signal == signal.SIGTERM
    await until_dead([started.shim], 20)
    assert list(folder.doors.iterdir()) == []


async def test_a_crash_after_the_take_over_is_heard(folder: DataFolder) -> None:
    """As from a child of its own."""
    started = start(folder)
    started.kill()
    survivor = (await found(folder, started.engine))[NAME]
    os.kill(started.engine, signal.SIGSEGV)
    assert (await asyncio.wait_for(survivor.process.wait_exit(), 20)).signal == signal.SIGSEGV
    await asyncio.wait_for(survivor.process.wait_gone(), 20)


async def test_a_killed_shim_after_the_take_over(folder: DataFolder) -> None:
    """The engine dies with it, and what is left is swept."""
    started = start(folder)
    started.kill()
    survivor = (await found(folder, started.engine))[NAME]
    os.kill(started.shim, signal.SIGKILL)
    await asyncio.wait_for(survivor.process.wait_gone(), 20)
    assert not alive(started.engine)


async def test_nobody_comes(folder: DataFolder) -> None:
    """Then it ends, after its time."""
    started = start(folder, open_for=0.3)
    started.kill()
    await until_dead([started.engine, started.shim], 20)


@pytest.mark.parametrize("how", ["another pid", "starting", "unknown"])
async def test_what_does_not_fit_is_no_survivor(folder: DataFolder, how: str) -> None:
    """A replica of another start, one that was not ready, one that the log does not know: a new start is quicker."""
    started = start(folder)
    started.kill()
    match how:
        case "another pid":
            assert await found(folder, 1) == {}
        case "starting":
            assert await found(folder, started.engine, ReplicaState.STARTING) == {}
        case "unknown":
            async with MemoryEventLog(SystemClock()) as log:
                assert await survivors(log, folder, "local") == {}
    await asyncio.to_thread(kill_marked, folder.mark)
    await until_dead([started.engine, started.shim], 20)


async def test_a_door_without_anybody_behind_it(folder: DataFolder) -> None:
    """A shim that was killed leaves its socket; it is removed."""
    started = start(folder)
    started.kill()
    os.kill(started.shim, signal.SIGKILL)
    await until_dead([started.engine, started.shim], 20)
    assert await found(folder, started.engine) == {}
    assert list(folder.doors.iterdir()) == []
