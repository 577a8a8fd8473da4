"""No orphan ever: whoever is killed, and however the engine behaves, nothing of a replica is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from deploy.local import process as local_process
from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.logs import tail
from deploy.local.process import SHIM, CannotStart, Exit, Order, ReplicaProcess, start_process
from deploy.local.stale import find_marked, kill_marked
from tests.support.local_cluster import FAKE, alive, until_dead

BOUND = 2.0
"""Seconds in which everything must be gone when relume is killed."""


def order(folder: Path, *argv: str, grace: float = 5.0, log_bytes: int = 5 << 20) -> Order:
    """A start of `argv` as a replica of `folder`."""
    env = {"PATH": os.environ["PATH"], MARK_REPLICA: "echo-r1-0", MARK_DATA: str(folder)}
    return Order(
        argv=argv, env=env, log_path=folder / "echo-r1-0.log", header="=== relume: test", grace=grace,
        log_bytes=log_bytes,
    )  # fmt: skip


def family(folder: Path) -> tuple[str, ...]:
    """An engine with a child in its group and one that forked twice and left the session."""
    return (sys.executable, "-S", FAKE, "0", "--silent", "--children", str(folder / "pids"))


async def pids_of(folder: Path) -> list[int]:
    """The three pids of a family, once all are known."""
    for _ in range(1000):
        with contextlib.suppress(FileNotFoundError):
            pids = [int(line) for line in (folder / "pids").read_text().split()]
            if len(pids) == 3:
                assert all(alive(pid) for pid in pids)
                return pids
        await asyncio.sleep(0.01)
    raise AssertionError("the family did not start")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Whatever a test does, it must leave no marked process; what it leaves is killed."""
    yield
    left = kill_marked(str(tmp_path))
    assert left == []


@pytest.fixture
async def process(tmp_path: Path) -> ReplicaProcess:
    """A running family."""
    return await start_process(order(tmp_path, *family(tmp_path)))


RELUME = """
import asyncio, os, pathlib, sys, threading
sys.path.insert(0, {root!r})
from deploy.local.logs import tail
from deploy.local.process import Order, start_process
folder = pathlib.Path({folder!r})
async def main():
    order = Order(argv={argv!r}, env={env!r}, log_path=folder / "x.log", header="=== relume: test")
    await start_process(order)
    await asyncio.sleep(600)
{run}
"""


@pytest.mark.parametrize("run", ["asyncio.run(main())", "threading.Thread(target=asyncio.run, args=(main(),)).start()"],
                         ids=["main thread", "other thread"])  # fmt: skip
async def test_relume_is_killed(tmp_path: Path, run: str) -> None:
    """After kill -9 of relume its engines and all they started are gone within two seconds, from any thread started."""
    root = str(Path(__file__).parents[2])
    env = dict(order(tmp_path).env)
    program = RELUME.format(root=root, folder=str(tmp_path), argv=family(tmp_path), env=env, run=run)
    relume = await asyncio.create_subprocess_exec(sys.executable, "-c", textwrap.dedent(program))
    pids = await pids_of(tmp_path)
    async with asyncio.timeout(5 * BOUND):
        while len(everything := {*pids, *(one.pid for one in find_marked(str(tmp_path)))}) != 4:  # noqa: ASYNC110 - in other processes
            await asyncio.sleep(0.01)  # with the shim there are four, once the one between two forks has ended
    relume.kill()
    await relume.wait()
    await until_dead(list(everything), BOUND)


async def test_starting_thread_ends(tmp_path: Path) -> None:
    """A replica that was started by a thread goes on when that thread ends, though Linux tells its shim of a death."""
    shims: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        arguments = order(tmp_path, *family(tmp_path)).shim_arguments()
        command = [sys.executable, "-I", "-S", SHIM, *arguments]
        shims.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=order(tmp_path).env))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    pids = await pids_of(tmp_path)
    await asyncio.sleep(0.2)
    assert all(alive(pid) for pid in pids)
    assert shims[0].stdin is not None
    shims[0].stdin.close()
    assert await asyncio.to_thread(shims[0].wait) == 0
    assert not any(alive(pid) for pid in pids)


async def test_shim_is_killed(tmp_path: Path, process: ReplicaProcess) -> None:
    """After kill -9 of the shim the engine and all it started are gone, and only then is it said."""
    pids = await pids_of(tmp_path)
    os.kill(process.shim_pid, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait_gone(), BOUND) == Exit()
    assert not any(alive(pid) for pid in pids)


async def test_engine_is_killed(tmp_path: Path, process: ReplicaProcess) -> None:
    """After kill -9 of the engine what it started is gone too, and the signal is told at once."""
    pids = await pids_of(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait_exit(), BOUND) == Exit(signal=signal.SIGKILL)
    await asyncio.wait_for(process.wait_gone(), BOUND)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped by SIGSTOP"])
async def test_terminate(tmp_path: Path, process: ReplicaProcess, stopped: bool) -> None:
    """A stop ends the whole family at once by SIGTERM, also an engine that somebody stopped."""
    pids = await pids_of(tmp_path)
    if stopped:
        os.kill(process.pid, signal.SIGSTOP)
    process.terminate()
    assert await asyncio.wait_for(process.wait_gone(), BOUND) == Exit(signal=signal.SIGTERM)
    assert not any(alive(pid) for pid in pids)


async def test_ignores_sigterm(tmp_path: Path) -> None:
    """An engine that ignores SIGTERM is killed after the grace, not before."""
    argv = (*family(tmp_path), "--ignore-sigterm")
    process = await start_process(order(tmp_path, *argv, grace=0.4))
    pids = await pids_of(tmp_path)
    process.terminate()
    await asyncio.sleep(0.2)
    assert alive(process.pid)
    assert await asyncio.wait_for(process.wait_gone(), BOUND) == Exit(signal=signal.SIGKILL)
    assert not any(alive(pid) for pid in pids)


async def test_stuck_shim(tmp_path: Path, process: ReplicaProcess) -> None:
    """A shim that is stopped cannot keep its engine: kill reaches the engine, and the rest is cleared away."""
    pids = await pids_of(tmp_path)
    os.kill(process.shim_pid, signal.SIGSTOP)
    process.kill()
    await until_dead([process.pid], BOUND)
    process.abandon_shim()
    await asyncio.wait_for(process.wait_gone(), BOUND)
    assert not any(alive(pid) for pid in pids)


async def test_grace_is_for_the_whole_group(tmp_path: Path) -> None:
    """When a wrapper ends at SIGTERM, the server it wraps still has the grace to end in order."""
    said = tmp_path / "said"
    at_term = f"sleep 0.3; echo in order >> {said}; exit 0"
    server = f"trap '{at_term}' TERM; echo up >> {said}; while :; do sleep 0.05; done"
    wrapper = f'sh -c "{server}" & wait'
    process = await start_process(order(tmp_path, "sh", "-c", wrapper))
    for _ in range(500):
        if said.exists():
            break
        await asyncio.sleep(0.01)
    process.terminate()
    await asyncio.wait_for(process.wait_gone(), BOUND * 2)
    assert said.read_text().split("\n")[:2] == ["up", "in order"]


async def test_log_is_capped(tmp_path: Path) -> None:
    """An engine that writes without end fills two files of the cap, no more, and its last words are there."""
    cap = 100_000
    script = 'i=0; while [ $i -lt 20000 ]; do echo "line $i of a log that grows and grows"; i=$((i+1)); done; exit 7'
    process = await start_process(order(tmp_path, "sh", "-c", script, log_bytes=cap))
    assert await process.wait_gone() == Exit(code=7)
    files = logs(tmp_path)
    assert set(files) == {"echo-r1-0.log", "echo-r1-0.log.1"}
    assert all(stat.st_size <= cap + 65536 for stat in files.values())
    assert tail(tmp_path / "echo-r1-0.log", 1) == ("line 19999 of a log that grows and grows",)
    assert all(stat.st_mode & 0o077 == 0 for stat in files.values())


def logs(folder: Path) -> dict[str, os.stat_result]:
    """The log files, by name."""
    return {path.name: path.stat() for path in folder.glob("echo-r1-0.log*")}


async def test_cannot_execute(tmp_path: Path) -> None:
    """A command that does not exist, or is no program, is told with its name, and leaves nothing."""
    for argv, missing in ((("/no/such/engine",), True), ((str(tmp_path),), True), (("no-such-engine",), True)):
        with pytest.raises(CannotStart, match=argv[0]) as raised:
            await start_process(order(tmp_path, *argv))
        assert raised.value.missing is missing


@pytest.mark.slow
def test_shim_ends_before_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With uvloop, as relume runs: a shim that has gone when its failed start is cleared up is no fault of its own."""

    async def late(shim: asyncio.subprocess.Process, order: Order) -> int:
        await shim.wait()
        while shim.stdin is not None and not shim.stdin.is_closing():  # noqa: ASYNC110 - uvloop tells nobody of it
            await asyncio.sleep(0.01)
        raise CannotStart("no such command", missing=True)

    async def run() -> None:
        with pytest.raises(CannotStart, match="no such command"):
            await start_process(order(tmp_path, "/no/such/engine"))

    monkeypatch.setattr(local_process, "_first_word", late)
    uvloop.run(asyncio.wait_for(run(), 20))


async def test_log_cannot_be_written(tmp_path: Path) -> None:
    """A folder for logs that is not there fails the start with a reason, not with a hang."""
    wrong = order(tmp_path, "true")
    with pytest.raises(CannotStart, match="No such file"):
        await start_process(Order(argv=wrong.argv, env=wrong.env, log_path=tmp_path / "no" / "x.log", header=""))


async def test_start_is_abandoned(tmp_path: Path) -> None:
    """A start that is cancelled half-way leaves no engine."""
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        starting = asyncio.create_task(start_process(order(tmp_path, sys.executable, "-S", FAKE, "0", "--silent")))
        await asyncio.sleep(delay)
        starting.cancel()
        (result,) = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(result, ReplicaProcess):
            result.kill()
            await result.wait_gone()
    for _ in range(200):
        if not find_marked(str(tmp_path)):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("an engine was left")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without Linux's prctl and /proc, such as macOS: pipe, process group and marks must suffice."""
    source = Path(SHIM).read_text()
    assert 'LINUX = sys.platform == "linux"' in source
    shim = tmp_path / "shim.py"
    shim.write_text(source.replace('LINUX = sys.platform == "linux"', "LINUX = False"))
    monkeypatch.setattr(local_process, "SHIM", str(shim))
    monkeypatch.setattr(local_process, "sys", SimpleNamespace(platform="darwin", executable=sys.executable))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("how", ["terminate", "kill", "engine dies", "shim dies"])
async def test_without_linux(tmp_path: Path, how: str) -> None:
    """Without Linux's help nothing is left either, whoever ends first."""
    process = await start_process(order(tmp_path, *family(tmp_path)))
    pids = await pids_of(tmp_path)
    match how:
        case "terminate":
            process.terminate()
        case "kill":
            process.kill()
        case "engine dies":
            os.kill(process.pid, signal.SIGKILL)
        case _:
            os.kill(process.shim_pid, signal.SIGKILL)
    await asyncio.wait_for(process.wait_gone(), BOUND * 10)
    assert not any(alive(pid) for pid in pids)
