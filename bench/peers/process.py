"""A proxy in a process of its own: started, addressed, its CPU read, ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bench import machine

START_DEADLINE = 10.0
STOP_DEADLINE = 5.0


class Proxy(Protocol):
    """What load can be put on."""

    @property
    def name(self) -> str:
        """For the table."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""

    def cpu_seconds(self) -> float:
        """CPU that it has used."""


class CannotRun(Exception):
    """This proxy cannot be measured here; the message says why."""


class PeerProcess:
    """A yardstick: its command listens on `port` and forwards to one upstream."""

    def __init__(self, name: str, command: Sequence[str], port: int, log: Path) -> None:
        self.name = name
        self.address = ("127.0.0.1", port)
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when it listens. Raises CannotRun."""
        with self._log.open("wb") as log:
            self._process = process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(START_DEADLINE):
                while not await _listens(self.address):
                    if process.returncode is not None:
                        raise CannotRun(f"{self.name} ended with {process.returncode}: {self._last_words()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await self.stop()
            raise CannotRun(f"{self.name} does not listen after {START_DEADLINE} s: {self._last_words()}") from None
        machine.pin(process.pid, machine.cores()[1])

    async def stop(self) -> None:
        """End it."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def cpu_seconds(self) -> float:
        """With its children."""
        assert self._process is not None
        return machine.tree_cpu_seconds(self._process.pid)

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


async def _listens(address: tuple[str, int]) -> bool:
    try:
        _, writer = await asyncio.open_connection(*address)
    except OSError:
        return False
    writer.close()
    return True
