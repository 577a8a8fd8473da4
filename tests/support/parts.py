"""The parts of relume as processes of their own for tests, on a real broker: started, killed and started again."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from deploy.demo.server import PROGRAM, START_DEADLINE, STOP_DEADLINE
from tests.support.running import complaints, nothing_left

FOLDERS = {"gateway": "gateway", "autoscaler": "autoscaler", "cluster": "."}
"""Where each part puts its endpoints, within its data folder."""


class PartProcess:
    """`relume ROLE` in a process of its own. `name` tells two of one role apart."""

    def __init__(self, role: str, folder: Path, arguments: tuple[str, ...], name: str = "") -> None:
        self.role = role
        self.name = name or role
        self.data = folder / "data"
        self.log = folder / f"{self.name}.log"
        self.endpoints: dict[str, Any] = {}
        ports = ("--gateway-port", "0", "--admin-port", "0") if role == "gateway" else ("--admin-port", "0")
        self._command = (*PROGRAM, role, "--data-dir", str(self.data), *ports, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, wait: bool = True) -> None:
        """Start it, anew if need be; with `wait` it then listens."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)
        if wait:
            await self.listening()

    async def listening(self) -> None:
        """Return once it says where it listens; AssertionError tells its last words otherwise."""
        try:
            async with asyncio.timeout(START_DEADLINE):
                while not self._file.exists():
                    assert self.runs, self.last_words()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(self.last_words()) from None
        self.endpoints = json.loads(self._file.read_text(encoding="utf-8"))

    @property
    def _file(self) -> Path:
        return self.data / FOLDERS[self.role] / "endpoints.json"

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    def terminate(self) -> None:
        """SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def ended(self, within: float = STOP_DEADLINE) -> int:
        """Its exit code; killed and AssertionError when it does not end."""
        assert self._process is not None
        try:
            async with asyncio.timeout(within):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise AssertionError(f"{self.name} did not end: {self.last_words()}") from None

    async def stop(self) -> int:
        """SIGTERM, and its exit code: 0 for one that does not run, that of SIGKILL for one that does not end."""
        if not self.runs:
            return 0
        self.terminate()
        try:
            return await self.ended()
        except AssertionError:
            return -signal.SIGKILL

    def last_words(self) -> str:
        """The end of what it said."""
        if not self.log.exists():
            return f"{self.name} said nothing"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])


class Parts:
    """Some parts that run on one log, and a session to ask them with."""

    def __init__(self, folder: Path, events: tuple[str, ...], session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.session = session
        self.all: list[PartProcess] = []
        self._events = events

    def part(self, role: str, *arguments: str, name: str = "") -> PartProcess:
        """One more, not started."""
        made = PartProcess(role, self.folder / (name or role), (*self._events, *arguments), name)
        self.all.append(made)
        return made

    async def chat(self, gateway: PartProcess, model: str = "echo", **body: Any) -> aiohttp.ClientResponse:
        """One chat completion; the answer is read whole."""
        asked = {"model": model, "messages": [{"role": "user", "content": "hello"}]} | body
        url = f"{gateway.endpoints['gateway']}/v1/chat/completions"
        async with self.session.post(url, json=asked) as answer:
            await answer.read()
            return answer

    async def ask(self, part: PartProcess, path: str) -> Any:
        """What the admin port of a part answers."""
        async with self.session.get(f"{part.endpoints['admin']}{path}") as answer:
            return await answer.json()

    async def status(self, part: PartProcess, model: str = "echo") -> dict[str, Any]:
        """A model's status, as a part knows it; empty while it does not know the model."""
        async with self.session.get(f"{part.endpoints['admin']}/v1alpha1/models/{model}") as answer:
            status: dict[str, Any] = (await answer.json())["status"] if answer.status == 200 else {}
            return status

    async def apply(self, part: PartProcess, text: str) -> tuple[int, dict[str, Any]]:
        """Apply documents; the status code and the answer."""
        headers = {"Content-Type": "application/yaml"}
        url = f"{part.endpoints['admin']}/v1alpha1/models"
        async with self.session.post(url, data=text.encode(), headers=headers) as answer:
            return answer.status, await answer.json()

    async def until(
        self, part: PartProcess, wanted: Callable[[dict[str, Any]], bool], model: str = "echo", within: float = 40.0
    ) -> None:
        """Wait until the model's status is as wanted; AssertionError tells the last one otherwise."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within):
                while True:
                    if (status := await self.status(part, model)) and wanted(status):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not as wanted within {within} s: {status}") from None

    async def listed(self, gateway: PartProcess, model: str = "echo", within: float = 40.0) -> None:
        """Wait until a gateway serves a model."""
        async with asyncio.timeout(within):
            while True:
                async with self.session.get(f"{gateway.endpoints['gateway']}/v1/models") as answer:
                    if model in {one["id"] for one in (await answer.json())["data"]}:
                        return
                await asyncio.sleep(0.02)

    async def events(self, part: PartProcess, *topics: str) -> list[dict[str, Any]]:
        """What stands in the log, as CloudEvents, oldest first within a topic."""
        query = {"topic": ",".join(topics), "from": "beginning"}
        async with self.session.get(f"{part.endpoints['admin']}/v1alpha1/events", params=query) as answer:
            answer.raise_for_status()
            return [json.loads(line) for line in (await answer.read()).splitlines()]

    async def ready(self, part: PartProcess, within: float = 40.0) -> None:
        """Wait until a part says that it is ready."""
        told: Any = None
        try:
            async with asyncio.timeout(within):
                while not (told := await self.ask(part, "/readyz"))["ready"]:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{part.name} is not ready: {told}; {part.last_words()}") from None


@asynccontextmanager
async def parts_on(folder: Path, events: tuple[str, ...]) -> AsyncIterator[Parts]:
    """Parts on a log; at the end all are stopped in order, without a complaint, and no process of theirs is left."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=120)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        parts = Parts(folder, events, session)
        try:
            yield parts
        finally:
            codes = {one.name: await one.stop() for one in reversed(parts.all)}
    assert {one.name: complaints(one.log) for one in parts.all if one.log.exists() and complaints(one.log)} == {}
    bad = {one.name: (codes[one.name], one.last_words()) for one in parts.all if codes[one.name]}
    assert bad == {}
    await asyncio.gather(*(nothing_left(one.log.parent) for one in parts.all))
