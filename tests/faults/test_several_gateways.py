"""Gateways in processes of their own: authorities are killed with kill -9, stopped and woken, the log goes away."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.types.replicas import ReplicaStatus
from events.writer import EventWriter
from runtime.core.members import Member
from runtime.core.rendezvous import choose
from tests.support.desk import declaration
from tests.support.log_server import LogServer
from tests.support.several import served_by
from tests.support.simulated import Client, simulated
from tests.support.slots import MODEL, observed

TAKEN_OVER = 3.0
"""Seconds from kill -9 of an authority to an answer through the next one, with engines that stop cancelled requests at
once: tens of milliseconds on a quiet machine, see docs/benchmarks.md; docs/how-to/gateways.md promises one second."""

NOW = SystemClock().now


class Process:
    """One gateway."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.url = ""

    async def counts(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        counts: dict[str, Any] = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 30))
        return counts

    def send(self, number: int) -> None:
        self.process.send_signal(number)


class Fleet:
    """All gateways, their log and their clients."""

    def __init__(self, path: Path, log: MemoryEventLog, session: aiohttp.ClientSession) -> None:
        self.path = path
        self.log = log
        self.server = LogServer(log, path)
        self.session = session
        self.gateways: dict[str, Process] = {}
        self.ended: list[float] = []
        self.failed: list[str] = []
        self._writer = EventWriter("relume/test", SystemClock())
        self._stop = asyncio.Event()
        self._clients: list[asyncio.Task[None]] = []

    async def start(self, *names: str) -> None:
        """Start these, and wait until all that are there know each other."""
        for name in names:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.gateway_process", name, str(self.path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            self.gateways[name] = Process(name, process)
        for name in names:
            self.gateways[name].url = f"http://127.0.0.1:{(await self.gateways[name].counts())['port']}"
        await self.know_each_other()

    async def know_each_other(self) -> None:
        async with asyncio.timeout(60):
            for gateway in self.gateways.values():
                while True:
                    counts = await gateway.counts()
                    if (counts["gateways"], counts["missing"]) == (len(self.gateways), 0):
                        break
                    await asyncio.sleep(0.02)

    def authority(self) -> str:
        """Of MODEL, among those that live."""
        chosen = choose(MODEL, [Member(name, "") for name in self.gateways])
        assert chosen is not None
        return chosen.gateway

    async def kill(self, name: str) -> None:
        gateway = self.gateways.pop(name)
        gateway.send(signal.SIGKILL)
        await gateway.process.wait()

    async def append(self, *data: object) -> None:
        await self.log.append([self._writer.envelope(one) for one in data])

    async def observe(self, *replicas: ReplicaStatus) -> None:
        await self.append(observed(*replicas))

    # Clients

    def load(self, each: int, *, stream: bool = False) -> None:
        """So many clients at each gateway, until `stop`."""
        for gateway in self.gateways.values():
            self._clients += [asyncio.create_task(self._client(gateway, index, stream)) for index in range(each)]

    async def _client(self, gateway: Process, index: int, stream: bool) -> None:
        body = {"model": MODEL, "prompt": "x", "max_tokens": 3, "stream": stream}
        headers = {"Authorization": f"Bearer key-{index}"}
        while not self._stop.is_set() and gateway.name in self.gateways:
            try:
                async with self.session.post(f"{gateway.url}/v1/completions", json=body, headers=headers) as answer:
                    text = await answer.text()
            except aiohttp.ClientError as error:
                if gateway.name in self.gateways and gateway.process.returncode is None:
                    self.failed.append(f"{gateway.name}: {error!r}")
                return
            if answer.status == 200:
                self.ended.append(NOW())
            else:
                self.failed.append(f"{gateway.name}: {answer.status} {text[:200]}")

    async def some(self, more: int) -> None:
        """Return when so many more were answered."""
        wanted = len(self.ended) + more
        async with asyncio.timeout(60):
            while len(self.ended) < wanted:  # noqa: ASYNC110 - it happens in other processes
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._clients)


@asynccontextmanager
async def fleet(folder: Path, *names: str) -> AsyncIterator[Fleet]:
    """Gateways of these names that know MODEL; at the end each is asked to end, and must."""
    connector = aiohttp.TCPConnector(limit=0)
    async with MemoryEventLog(SystemClock()) as log, aiohttp.ClientSession(connector=connector) as session:
        made = Fleet(folder / "log", log, session)
        await made.server.start()
        await made.append(declaration())
        try:
            await made.start(*names)
            yield made
            await made.stop()
            for gateway in made.gateways.values():
                gateway.send(signal.SIGTERM)
            codes = [await asyncio.wait_for(it.process.wait(), 30) for it in made.gateways.values()]
            assert set(codes) == {0}
        finally:
            for gateway in made.gateways.values():
                if gateway.process.returncode is None:
                    gateway.send(signal.SIGKILL)
                    await gateway.process.wait()
            await made.server.close()


def exact(stats: dict[str, Any], slots: int) -> None:
    """The engine never had more than its slots, and had them all."""
    assert stats["oversold"] == stats["duplicates"] == 0
    assert stats["peak"] == slots


async def engine_of(made: Fleet, engine: Client, slots: int) -> None:
    await made.observe(served_by(engine, 0, slots))


@pytest.mark.parametrize("slots", [1, 16])
async def test_three_processes_share_one_slot_and_many(tmp_path: Path, slots: int) -> None:
    """Under load from all sides slots are exact, all gateways are served alike, and nobody is refused."""
    flags = ("--max-num-seqs", str(slots), "--time-to-first-token", "3ms")
    async with simulated(*flags) as engine, fleet(tmp_path, "a", "b", "c") as made:
        await engine_of(made, engine, slots)
        made.load(each=2 * slots)
        await made.some(100 * slots)
        await made.stop()
        exact(await engine.stats(), slots)
        assert made.failed == []
        counts = {name: await gateway.counts() for name, gateway in made.gateways.items()}
        assert [name for name, it in counts.items() if it["granted"]] == [made.authority()]


@pytest.mark.parametrize("cancels", ["always", "never"])
async def test_the_authority_is_killed(tmp_path: Path, cancels: str) -> None:
    """kill -9, twice in turn, under load. Another takes over in time; while what the killed gateway sent still runs in
    an engine that does not stop it, its slots are sold to nobody."""
    flags = ("--max-num-seqs", "2", "--time-to-first-token", "50ms", "--cancels", cancels)
    async with simulated(*flags) as engine, fleet(tmp_path, "a", "b", "c") as made:
        await engine_of(made, engine, 2)
        made.load(each=3)
        pauses = []
        for _ in range(2):
            await made.some(20)
            await made.kill(made.authority())
            killed_at = NOW()
            await made.some(4)  # two may have run already
            pauses.append(made.ended[-1] - killed_at)
        await made.some(20)
        await made.stop()
        print("kill -9 of the authority to the fourth answer after it:", [f"{pause:.3f} s" for pause in pauses])  # noqa: T201 - a measurement
        exact(await engine.stats(), 2)
        assert made.failed == []
        assert max(pauses) < TAKEN_OVER


async def test_another_gateway_is_killed(tmp_path: Path) -> None:
    """Its slots come back as the engine stops its requests; the others go on meanwhile."""
    async with (
        simulated("--max-num-seqs", "4", "--time-to-first-token", "100ms", "--cancels", "always") as engine,
        fleet(tmp_path, "a", "b", "c") as made,
    ):
        await engine_of(made, engine, 4)
        made.load(each=4, stream=True)
        await made.some(20)
        victim = next(name for name in made.gateways if name != made.authority())
        await made.kill(victim)
        await made.some(60)
        await made.stop()
        stats = await engine.stats()
        exact(stats, 4)
        assert made.failed == []


async def test_a_stopped_authority_sells_nothing_when_it_wakes(tmp_path: Path) -> None:
    """SIGSTOP until others have taken over, then SIGCONT under load: never two authorities at once."""
    flags = ("--max-num-seqs", "2", "--time-to-first-token", "20ms")
    async with simulated(*flags) as engine, fleet(tmp_path, "a", "b", "c") as made:
        await engine_of(made, engine, 2)
        made.load(each=3)
        await made.some(20)
        stopped = made.gateways[made.authority()]
        stopped.send(signal.SIGSTOP)
        await made.some(10)  # through the next authority, after it is sure
        stopped.send(signal.SIGCONT)
        await made.some(60)
        await made.know_each_other()
        await made.some(20)
        await made.stop()
        exact(await engine.stats(), 2)
        assert made.failed == []


async def test_the_log_goes_away(tmp_path: Path) -> None:
    """Everybody serves on for longer than it takes to be found dead; then a gateway is killed, and the others go on."""
    flags = ("--max-num-seqs", "2", "--time-to-first-token", "20ms", "--cancels", "always")
    async with simulated(*flags) as engine, fleet(tmp_path, "a", "b", "c") as made:
        await engine_of(made, engine, 2)
        made.load(each=3)
        await made.some(20)
        made.server.go_away()
        until = NOW() + 9.0
        while NOW() < until:
            await made.some(10)
        await made.kill(made.authority())
        await made.some(40)
        made.server.come_back()
        await made.some(20)
        await made.know_each_other()
        await made.stop()
        exact(await engine.stats(), 2)
        assert made.failed == []
