"""A whole relume for tests: a real `relume up` in a process of its own, with simulated models, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from deploy.demo.server import Server
from tests.support.waiting import until

QUICK = "startTime: 300ms, timeToFirstToken: 10ms, interTokenLatency: 2ms"


def simulated(name: str = "echo", *, options: str = QUICK, extra: str = "", **scaling: object) -> str:
    """A Model document on the simulated engine: 4 slots, 0 to 4 replicas, kept 2 s, unless said otherwise."""
    numbers: dict[str, object] = {"minReplicas": 0, "maxReplicas": 4, "keepAlive": "2s", "stableWindow": "4s",
                                  "panicWindow": "1s"} | scaling  # fmt: skip
    shown = ", ".join(f"{key}: {value}" for key, value in numbers.items())
    slots = "" if "slots:" in extra else "\n  slots: 4"
    resources = "" if "resources:" in extra else "\n  resources: {cpu: 0.1, memory: 64Mi}"
    return f"""apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  engine: {{type: simulated, options: {{{options}}}}}
  scaling: {{{shown}}}{slots}{resources}
{extra}
"""


@dataclass
class Running:
    """A running relume, and a session to ask it with."""

    server: Server
    session: aiohttp.ClientSession
    folder: Path

    @property
    def gateway(self) -> str:
        """Where clients ask, without /v1."""
        return self.server.gateway_url

    @property
    def admin(self) -> str:
        """Where the admin API is, with its version."""
        return f"{self.server.admin_url}/v1alpha1"

    async def chat(self, model: str = "echo", **body: Any) -> aiohttp.ClientResponse:
        """One chat completion; the answer is read whole."""
        asked = {"model": model, "messages": [{"role": "user", "content": "hello"}]} | body
        async with self.session.post(f"{self.gateway}/v1/chat/completions", json=asked) as answer:
            await answer.read()
            return answer

    async def status(self, model: str = "echo") -> dict[str, Any]:
        """The model's status."""
        async with self.session.get(f"{self.admin}/models/{model}") as answer:
            answer.raise_for_status()
            status: dict[str, Any] = (await answer.json())["status"]
            return status

    async def until(self, wanted: Callable[[dict[str, Any]], bool], model: str = "echo", within: float = 60.0) -> None:
        """Wait until the model's status is as wanted; AssertionError tells the last one otherwise."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while not wanted(status := await self.status(model)):  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not as wanted within {within} s: {status}") from None

    async def apply(self, text: str) -> tuple[int, dict[str, Any]]:
        """Apply documents; the status code and the answer."""
        headers = {"Content-Type": "application/yaml"}
        async with self.session.post(f"{self.admin}/models", data=text.encode(), headers=headers) as answer:
            return answer.status, await answer.json()

    async def replicas(self) -> list[dict[str, Any]]:
        """All replicas as the admin API lists them."""
        async with self.session.get(f"{self.admin}/replicas") as answer:
            items: list[dict[str, Any]] = (await answer.json())["items"]
            return items

    async def engine_stats(self, address: str) -> dict[str, Any]:
        """What a simulated engine counted."""
        async with self.session.get(f"http://{address}/stats") as answer:
            stats: dict[str, Any] = await answer.json()
            return stats


@asynccontextmanager
async def asking(server: Server, folder: Path) -> AsyncIterator[Running]:
    """A started relume, with a session to ask it."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield Running(server, session, folder)


@asynccontextmanager
async def running(folder: Path, documents: str, *arguments: str) -> AsyncIterator[Running]:
    """A relume that has `documents` declared. It is stopped at the end: in order, without a complaint in what it said,
    and without a process of its own left behind."""
    server = Server(folder, ("-f", str(_written(folder, documents)), *arguments))
    await server.start()
    try:
        async with asking(server, folder) as relume:
            yield relume
    finally:
        code = await server.stop()
    assert complaints(server.log) == ""
    assert code == 0, f"it ended with {code}"
    await nothing_left(folder)


BAD_WORDS = ("Traceback", "Exception in callback", "exception was never retrieved", "was never awaited", "Unclosed")
"""What a log says of errors that nobody thought of."""


def complaints(log: Path) -> str:
    """The first of the `BAD_WORDS` in what a relume said, with the lines around it; empty when there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines):
        if any(word in line for word in BAD_WORDS):
            return "\n".join(lines[max(0, number - 5) : number + 40])
    return ""


def _written(folder: Path, documents: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "models.yaml"
    manifest.write_text(documents, encoding="utf-8")
    return manifest


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that carry the data folder of a relume in their environment: its replicas, alive or left behind."""
    mark = str((folder / "data").resolve())
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RELUME_DATA_DIR") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def nothing_left(folder: Path, within: float = 10.0) -> None:
    """Every process of the folder's relume is gone within so many seconds. (The shim of a replica that was taken over
    is no child of the relume that ended it: after its last word, `gone`, it may still be on its way out.)"""
    await until(lambda: not processes_of(folder), within, lambda: f"left: {processes_of(folder)}")
