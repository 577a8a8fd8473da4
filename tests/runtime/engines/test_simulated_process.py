"""The simulated engine as a process: starts, failed starts, crashes, signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.support.simulated import completion


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def run(*flags: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start one; the process and its URL."""
    port = free_port()
    argv = [sys.executable, "-m", "runtime.engines.simulated_server", "--model", "sim", "--port", str(port), *flags]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    return process, f"http://127.0.0.1:{port}"


async def said(process: asyncio.subprocess.Process, words: str) -> str:
    """Read its log until a line has these words."""
    assert process.stderr is not None
    async with asyncio.timeout(20):
        while line := (await process.stderr.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"it ended without saying {words!r}")


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Its exit code and what it said."""
    async with asyncio.timeout(20):
        _, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, error.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_with_a_stream_running(number: signal.Signals) -> None:
    """Exit 0, no traceback, and the client sees a cut stream."""
    process, url = await run("--inter-token-latency", "1s")
    await said(process, "ready")
    async with aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/v1/completions", json=completion(stream=True, max_tokens=100))
        process.send_signal(number)
        code, log = await ended(process)
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    assert (code, log) == (0, "")


async def test_a_signal_ends_it_while_it_loads() -> None:
    """A start that nobody needs any more is not waited for."""
    process, _ = await run("--startup-duration", "10m")
    await said(process, "listening")
    process.terminate()
    assert (await ended(process))[0] == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--fail-start", "spawn"], "before listening"), (["--fail-start", "load"], "failing to load")],
    ids=["spawn", "load"],
)
async def test_a_failing_start_exits_with_its_code_and_reason(flags: list[str], words: str) -> None:
    """The reason is the last line."""
    process, _ = await run(*flags, "--exit-code", "42")
    code, log = await ended(process)
    assert code == 42
    assert words in log.splitlines()[-1]


async def test_a_start_fails_only_while_the_file_exists(tmp_path: Path) -> None:
    """So that a test can let the next start succeed."""
    broken = tmp_path / "broken"
    broken.touch()
    flags = ("--fail-start", "load", "--fail-start-while", str(broken))
    assert (await ended((await run(*flags))[0]))[0] == 1
    broken.unlink()
    process, _ = await run(*flags)
    await said(process, "ready")
    process.terminate()
    assert (await ended(process))[0] == 0


async def test_hang_and_warmup_failures_listen_and_never_serve() -> None:
    """One is never healthy, the other is and answers 500."""
    async with aiohttp.ClientSession() as session:
        hanging, url = await run("--fail-start", "hang")
        await said(hanging, "listening")
        async with session.get(f"{url}/health") as answer:
            assert answer.status == 503
        hanging.terminate()
        assert (await ended(hanging))[0] == 0
        dumb, url = await run("--fail-start", "warmup")
        await said(dumb, "ready")
        async with session.post(f"{url}/v1/completions?probe", json=completion()) as answer:
            assert answer.status == 500
        dumb.terminate()
        assert (await ended(dumb))[0] == 0


async def test_it_crashes_when_it_begins_one_request_too_many() -> None:
    """Before a byte of that request's answer."""
    process, url = await run("--crash-after", "2", "--exit-code", "9")
    await said(process, "ready")
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(f"{url}/v1/completions", json=completion()) as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{url}/v1/completions", json=completion())
    code, log = await ended(process)
    assert (code, "crashing" in log) == (9, True)


async def test_a_taken_port_is_said_and_exits_with_one() -> None:
    """In the system's words, which the local cluster knows."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process, _ = await run("--port", str(taken.getsockname()[1]))
        code, log = await ended(process)
    assert code == 1
    assert "Address already in use" in log.splitlines()[-1]


async def test_it_takes_its_time_to_stop_when_told_to() -> None:
    """SIGTERM does not end it before its stop time is over."""
    process, _ = await run("--stop-duration", "400ms")
    await said(process, "ready")
    process.terminate()
    done, _ = await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=0.2)
    assert not done
    assert (await ended(process))[0] == 0
