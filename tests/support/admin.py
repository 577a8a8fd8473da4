"""A whole admin server for tests: real HTTP, a log in memory, small fakes of the ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp

from deploy.api.ports import Explanation, Reading
from deploy.api.server import AdminParts, AdminServer
from deploy.api.settings import AdminSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.writer import EventWriter

ECHO = """apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: echo}
spec:
  engine: {type: simulated, options: {startTime: 500ms}}
  aliases: [org/echo]
"""


@dataclass(frozen=True)
class Load:
    """One model's numbers."""

    model: str
    running: int = 0
    held: int = 0


@dataclass
class FakeTraffic:
    """Numbers of the slot authority."""

    loads: list[Load] = field(default_factory=list)

    def statuses(self) -> Sequence[Load]:
        return self.loads


@dataclass
class FakeLogs:
    """Output of replicas; `new` lines come to followers one after the other."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    new: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        known = self.lines.get(replica)
        return None if known is None else known[-lines:] if lines else []

    async def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        for line in await self.tail(replica, lines) or ():
            yield line
        while (line := await self.new.get()) is not None:
            yield line


@dataclass
class FakeExplainer:
    """Explanations by model."""

    by_model: dict[str, Explanation] = field(default_factory=dict)

    def explain(self, model: str) -> Explanation | None:
        return self.by_model.get(model)


@dataclass
class FakeReadiness:
    """What is said to be missing."""

    reasons: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def missing(self) -> Sequence[str]:
        return self.reasons

    def troubles(self) -> Sequence[str]:
        return self.wrong


@dataclass
class FakeReadings:
    """Numbers for /metrics."""

    readings: list[Reading] = field(default_factory=list)

    def read(self) -> Iterable[Reading]:
        return self.readings


@dataclass
class Admin:
    """A running server with everything that a test may touch."""

    server: AdminServer
    log: MemoryEventLog
    writer: EventWriter
    clock: SystemClock
    traffic: FakeTraffic
    logs: FakeLogs
    explainer: FakeExplainer
    readiness: FakeReadiness
    readings: FakeReadings
    training_logs: FakeLogs
    http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        host, port = self.server.address
        return f"http://{host}:{port}"

    async def say(self, *data: object, key: str | None = None) -> None:
        """Append events and let the server read them."""
        await self.log.append([self.writer.envelope(one, key=key) for one in data])
        for _ in range(20):
            await asyncio.sleep(0)

    async def apply(self, text: str = ECHO, query: str = "") -> tuple[int, dict[str, object]]:
        """POST documents; status and body."""
        headers = {"Content-Type": "application/yaml"}
        async with self.http.post(f"/v1alpha1/models{query}", data=text, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def send(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """PUT or DELETE with an empty body; status and body."""
        async with self.http.request(method, path, json={}) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, object]]:
        """GET JSON; status and body."""
        async with self.http.get(path, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def text(self, path: str) -> str:
        """GET text."""
        async with self.http.get(path) as response:
            return await response.text()


@asynccontextmanager
async def running_admin(settings: AdminSettings | None = None) -> AsyncIterator[Admin]:
    """Start one on a free port, give it with a client, close both."""
    clock = SystemClock()
    async with MemoryEventLog(clock) as log:
        traffic, logs, explainer = FakeTraffic(), FakeLogs(), FakeExplainer()
        readiness, readings, training_logs = FakeReadiness(), FakeReadings(), FakeLogs()
        parts = AdminParts(
            log, clock, traffic, logs, explainer, readiness, (readings,), training_logs=training_logs
        )  # fmt: skip
        server = AdminServer(parts, settings or AdminSettings(port=0))
        await server.start()
        await server.caught_up()
        host, port = server.address
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as http:
                writer = EventWriter("relume/test", clock)
                yield Admin(
                    server, log, writer, clock, traffic, logs, explainer, readiness, readings, training_logs, http
                )  # fmt: skip
        finally:
            await server.close()


def replica(name: str = "echo-r1-0", state: ReplicaState = ReplicaState.READY, uid: str = "u") -> ReplicaStatus:
    """A replica that started in two seconds."""
    spans = (
        PhaseSpan(phase=Phase.SPAWN, started_at=100.0, ended_at=100.5),
        PhaseSpan(phase=Phase.LOAD, started_at=100.5, ended_at=102.0),
    )
    ready = state in (ReplicaState.READY, ReplicaState.DRAINING)
    return ReplicaStatus(
        replica=name, uid=uid, revision=1, state=state, phases=spans, slots=4, node="local", pid=7,
        address="127.0.0.1:9000", created_at=100.0, ready_at=102.0 if ready else None,
        phase=None if ready else Phase.LOAD,
    )  # fmt: skip


def observed(*replicas: ReplicaStatus, uid: str = "u", **more: object) -> ReplicasObserved:
    """What the cluster adapter sees of one model."""
    return replace(ReplicasObserved(model="echo", uid=uid, replicas=tuple(replicas)), **more)
