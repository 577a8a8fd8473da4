"""The disk is full under a whole relume: warm models serve, nothing is scaled, it says so, and goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from deploy.demo.server import PROGRAM
from tests.support.faults import Whole, cli, faulty, metric, recorded
from tests.support.openai_clients import together
from tests.support.running import Running, simulated

pytestmark = pytest.mark.slow

MODELS = together(
    simulated(keepAlive="3s", stableWindow="2s", maxReplicas=1, extra="  slots: 16"),
    simulated("cold", maxReplicas=1, options="startTime: 50ms"),
)


@cache
def _can_mount() -> bool:
    """Whether this user may mount a small file system for a process of its own."""
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


def _full_file_system(folder: Path) -> tuple[Whole, Callable[[], None], Callable[[], None]]:
    """A relume whose log is on a file system of 2 MiB of its own; what fills it, and what makes space again."""
    place = folder / "small"
    place.mkdir()
    mount = ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"')
    whole = Whole(folder, MODELS, "--events", f"sqlite:{place}/events.db", program=(*mount, str(place), *PROGRAM))

    def ballast() -> Path:
        return Path(f"/proc/{whole.pid}/root{place}/ballast")

    def fill() -> None:
        with ballast().open("wb", buffering=0) as file, contextlib.suppress(OSError):  # No space left on device
            while True:
                file.write(bytes(4096))

    return whole, fill, lambda: ballast().unlink()


def _limited_files(folder: Path) -> tuple[Whole, Callable[[], None], Callable[[], None]]:
    """A relume that may write no byte to any file, its own log file included; what limits it, and what lifts that."""
    whole = Whole(folder, MODELS)
    return whole, lambda: whole.limit_files(0), lambda: whole.limit_files(resource.RLIM_INFINITY)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process can be set on Linux only")
@pytest.mark.parametrize("make", [_full_file_system, _limited_files])
async def test_full_for_a_while(
    tmp_path: Path, make: Callable[[Path], tuple[Whole, Callable[[], None], Callable[[], None]]]
) -> None:
    """Every request to a warm model is answered meanwhile; its replica stays beyond its keep-alive; apply says 503,
    metrics and readyz say what is wrong; with space again, all of this goes on without a restart."""
    if make is _full_file_system and not _can_mount():
        pytest.skip("this user may not mount a file system")
    whole, fill, free = make(tmp_path)
    async with faulty(whole) as relume:
        assert (await relume.chat()).status == 200
        wishes = len(await recorded(relume, "relume.decisions", "wish.decided"))
        (replica,) = await relume.replicas()
        fill()
        async with _load(relume) as count:
            failures = await metric(relume, "relume_log_failures_total")
            await _until_metric(relume, "relume_log_failures_total", failures + 1)
            status, told = await relume.apply(simulated("newcomer"))
            assert status == 503
            assert "event log" in f"{told['title']} {told['detail']}"
            assert "writ" in told["detail"]
            applied = await cli(relume, "scale", "echo", "2", "--for", "1m")
            assert applied.code == 1
            assert "Traceback" not in applied.err
            waiting = asyncio.create_task(relume.chat("cold"))
            assert any("event log" in trouble for trouble in await _troubles(relume))
            before = count()
            await asyncio.sleep(5)  # longer than its keep-alive, and with load
            assert count() > before + 20
        await asyncio.sleep(5)  # longer than its keep-alive, without load
        assert [one["metadata"]["name"] for one in await relume.replicas()] == [replica["metadata"]["name"]]
        assert (await relume.chat()).status == 200
        assert not waiting.done()
        free()
        assert (await asyncio.wait_for(waiting, 30)).status == 200
        await until_calm(relume)
        assert (await relume.apply(simulated("newcomer", options="startTime: 50ms")))[0] == 200
        assert (await relume.chat("newcomer")).status == 200
        await relume.until(lambda status: status["state"] == "Zero")
        assert len(await recorded(relume, "relume.decisions", "wish.decided")) > wishes
    if make is _full_file_system:  # else it could not say anything
        assert "cannot be written" in whole.said
        assert "can be written again" in whole.said
        assert len(whole.said.splitlines()) < 2000


async def until_calm(relume: Running) -> None:
    """Wait until nothing is wrong any more."""
    for _ in range(200):
        if not await _troubles(relume):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it still says that something is wrong")


async def _troubles(relume: Running) -> list[str]:
    async with relume.session.get(f"{relume.server.admin_url}/readyz") as answer:
        assert answer.status == 200  # warm models serve: no balancer should take this gateway away
        troubles: list[str] = (await answer.json())["troubles"]
        return troubles


async def _until_metric(relume: Running, name: str, least: float) -> None:
    for _ in range(200):
        if await metric(relume, name) >= least:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} stays below {least}")


@asynccontextmanager
async def _load(relume: Running) -> AsyncIterator[Callable[[], int]]:
    """Three clients that ask the warm model all the time, each answer 200; how many there were."""
    answered, stop = 0, asyncio.Event()

    async def client() -> None:
        nonlocal answered
        while not stop.is_set():
            assert (await relume.chat(max_tokens=2)).status == 200
            answered += 1

    clients = [asyncio.create_task(client()) for _ in range(3)]
    try:
        yield lambda: answered
    finally:
        stop.set()
        await asyncio.gather(*clients)
