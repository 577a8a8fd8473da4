"""The demo's own relume: a real `relume up` as a child process, on free ports and a folder of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

PROGRAM = (sys.executable, "-m", "deploy.cli.main")
"""The command line, in the environment that runs us."""

START_DEADLINE = 120.0
"""Seconds until it takes requests; over fifteen were seen on a machine with five busy processes a core, over sixty with
twenty."""
STOP_DEADLINE = 30.0
"""Seconds for a clean end after SIGTERM; then it is killed."""


class ServerFailed(Exception):
    """`relume up` did not come up; the message holds its last lines."""


class Server:
    """`relume up` in a process of its own."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], program: tuple[str, ...] = PROGRAM) -> None:
        self._folder = folder
        self._arguments = arguments
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self.log = folder / "relume.log"
        self.gateway_url = ""
        self.admin_url = ""

    async def start(self) -> None:
        """Start it and wait until it says where it listens. Raises ServerFailed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        endpoints = self._folder / "data" / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        command = [*self._program, "up", "--data-dir", str(self._folder / "data")]
        command += ["--gateway-port", "0", "--admin-port", "0", *self._arguments]
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(START_DEADLINE):
                while not endpoints.exists():
                    if self._process.returncode is not None:
                        raise ServerFailed(self._last_words())
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            await self.stop()
            raise ServerFailed(self._last_words()) from error
        where = json.loads(endpoints.read_text(encoding="utf-8"))
        self.gateway_url, self.admin_url = where["gateway"], where["admin"]

    async def stop(self) -> int:
        """SIGTERM, wait, SIGKILL if need be; the exit code."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_DEADLINE):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        return process.returncode if process.returncode is not None else 1

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "relume up did not start:\n" + "\n".join(lines[-15:])
