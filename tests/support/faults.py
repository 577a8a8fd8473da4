"""Faults of a whole relume: one that is signalled, killed, limited and started again; and clients that see it all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from deploy.demo.server import PROGRAM, Server
from tests.support.local_cluster import alive
from tests.support.running import Running, asking, complaints, nothing_left

HELLO = [{"role": "user", "content": "hello"}]


class Whole(Server):
    """`relume up` on a folder; it may be started again on it."""

    def __init__(self, folder: Path, documents: str, *arguments: str, program: tuple[str, ...] = PROGRAM) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / "models.yaml"
        manifest.write_text(documents, encoding="utf-8")
        declared = ("-f", str(manifest)) if documents else ()
        super().__init__(folder, (*declared, *arguments), program)
        self.folder = folder

    @property
    def pid(self) -> int:
        """Of the relume process."""
        assert self._process is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended; minus the signal that ended it."""
        return None if self._process is None else self._process.returncode

    @property
    def said(self) -> str:
        """What it has written since its last start."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    async def ended(self, within: float) -> int:
        """Its exit code, once it ends by itself; AssertionError when it does not in time."""
        assert self._process is not None
        try:
            async with asyncio.timeout(within):
                return await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"it did not end within {within} s:\n{self.said[-3000:]}") from None

    async def killed(self) -> None:
        """kill -9, and the wait for its end."""
        self.signal(signal.SIGKILL)
        assert await self.ended(10) == -signal.SIGKILL

    def limit_files(self, size: int) -> None:
        """From now on its writes at or behind `size` bytes of any file fail (EFBIG); `resource.RLIM_INFINITY` lifts."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def vitals(self) -> Vitals:
        """What it uses of the machine."""
        process = psutil.Process(self.pid)
        return Vitals(process.memory_info().rss, process.num_fds(), process.num_threads())


@dataclass(frozen=True, slots=True)
class Vitals:
    """Bytes of memory, open files, threads."""

    rss: int
    fds: int
    threads: int


@asynccontextmanager
async def faulty(whole: Whole) -> AsyncIterator[Running]:
    """Started and asked; stopped at the end if it still runs. Whatever happened, no process and no complaint stays."""
    await whole.start()
    try:
        async with asking(whole, whole.folder) as relume:
            yield relume
    finally:
        await whole.stop()
    assert complaints(whole.log) == ""
    await nothing_left(whole.folder)


async def replica_pids(relume: Running) -> dict[str, int]:
    """Engines' pids by replica, as the admin API tells them."""
    return {
        one["metadata"]["name"]: one["status"]["pid"] for one in await relume.replicas() if one["status"].get("pid")
    }


async def kill_engines(relume: Running) -> list[int]:
    """kill -9 of every engine that runs; their pids."""
    pids = [pid for pid in (await replica_pids(relume)).values() if alive(pid)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


@dataclass
class Stream:
    """A streamed answer as its client saw it."""

    status: int = 0
    data: list[str] = field(default_factory=list)
    """Of each SSE event."""
    broken: str = ""
    """What the client's HTTP library raised."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the first event, and at the end."""

    @property
    def error(self) -> dict[str, Any] | None:
        """The error object that was sent as the last event."""
        last = json.loads(self.data[-1]) if self.data and self.data[-1] != "[DONE]" else {}
        error: dict[str, Any] | None = last.get("error")
        return error

    @property
    def whole(self) -> bool:
        """Whether a client would take it for a whole answer."""
        return self.status == 200 and not self.broken and self.data[-1:] == ["[DONE]"]

    @property
    def visibly_broken(self) -> bool:
        """Whether no client can take it for a whole answer: an error event, or an end of the connection too early."""
        return bool(self.broken) or (self.error is not None and "[DONE]" not in self.data)


async def follow(relume: Running, stream: Stream, model: str = "echo", **body: Any) -> Stream:
    """Ask for a streamed chat completion and read it to whatever end."""
    asked = {"model": model, "messages": HELLO, "stream": True} | body
    try:
        async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=asked) as answer:
            stream.status = answer.status
            async for line in answer.content:
                if line.startswith(b"data: "):
                    stream.data.append(line[6:].decode().strip())
                    stream.begun.set()
    except aiohttp.ClientError as error:
        stream.broken = repr(error)
    finally:
        stream.begun.set()
    return stream


@dataclass(frozen=True, slots=True)
class Told:
    """What the command line said."""

    code: int
    out: str
    err: str


async def cli(relume: Running | None, *arguments: str) -> Told:
    """Run the command line against a relume, as a user would."""
    environment = dict(os.environ) | ({"RELUME_ADMIN": relume.server.admin_url} if relume is not None else {})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", *arguments, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Told(process.returncode or 0, out.decode(), err.decode())


async def recorded(relume: Running, topic: str, kind: str) -> list[dict[str, Any]]:
    """Events of a type that stand in the log, in order."""
    url = f"{relume.admin}/events"
    async with relume.session.get(url, params={"topic": topic, "from": "beginning"}) as answer:
        answer.raise_for_status()
        events = [json.loads(line) for line in (await answer.read()).splitlines()]
    return [event for event in events if event["type"] == f"relume.{kind}.v1"]


async def metric(relume: Running, name: str) -> float:
    """The sum of a metric over its labels."""
    async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
        text = await answer.text()
    found = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
    assert found, f"there is no metric {name}"
    return sum(float(line.rpartition(" ")[2]) for line in found)
