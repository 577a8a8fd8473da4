"""A local cluster over the memory log, with an allocator and a slot authority that the test plays by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from deploy.local.cluster import LocalCluster
from deploy.local.folder import DataFolder, open_folder
from deploy.local.settings import LocalSettings
from events.adapters.memory import MemoryEventLog
from events.adapters.opened import OpenedLog
from events.clock import SystemClock
from events.envelope import AnyEnvelope
from events.log import Query
from events.names import Topic, replica_name
from events.types.grants import GrantDecided, LeadershipTaken, Placement, ReplicaGrant
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved, ReplicaState
from events.types.shared import Resources
from events.units import Seconds
from events.writer import EventWriter

FAKE = str(Path(__file__).with_name("fake_engine.py"))
FAST = LocalSettings(
    gpus=0, grace=Seconds(2.0), watch_every=Seconds(0.1), metrics_every=Seconds(0.2), suspect_bound=Seconds(0.3),
    drain_bound=Seconds(20.0),
)  # fmt: skip
PATIENCE = 20.0
"""Seconds until a test gives up: the machine may be busy."""


def engine(*flags: object, **options: object) -> dict[str, object]:
    """The spec of a model that the fake engine serves with these flags."""
    command = ["{python}", "-S", FAKE, "{port}", *map(str, flags)]
    return {"engine": {"type": "command", "options": {"command": command, **options}}, "slots": 4}


NOTHING = Resources()


class Stage:
    """The cluster under test and its surroundings."""

    def __init__(self, folder: Path, settings: LocalSettings = FAST, log: OpenedLog | None = None) -> None:
        self.clock = SystemClock()
        self.log: OpenedLog = MemoryEventLog(self.clock) if log is None else log
        self.writer = EventWriter("relume/test", self.clock)
        self.folder: DataFolder = open_folder(folder)
        self.cluster_writer = EventWriter("relume/cluster/local", self.clock)
        self.cluster = LocalCluster(self.log, self.cluster_writer, self.clock, self.folder, settings)

    async def say(self, data: object, epoch: int | None = None) -> AnyEnvelope:
        """Append an event."""
        envelope = self.writer.envelope(data, epoch=epoch)
        await self.log.append([envelope])
        return envelope

    async def declare(self, spec: dict[str, object], model: str = "echo", **rest: object) -> None:
        """Declare a model; revision and generation 1, uid u1 unless given."""
        fields = {"uid": "u1", "revision": 1, "generation": 1, **rest}
        await self.say(ModelDeclared(model=model, spec=spec, **fields))  # type: ignore[arg-type]  # tests pass what fits

    async def lead(self) -> int:
        """Take leadership; its epoch."""
        envelope = self.writer.envelope(LeadershipTaken(pool="gpus", leader="test"))
        return (await self.log.append([envelope]))[0].offset

    async def grant(
        self, *indices: int, model: str = "echo", drain: tuple[int, ...] = (), resources: Resources = NOTHING,
        gpus: tuple[str, ...] = (), uid: str = "u1", revision: int = 1, epoch: int | None = None,
        asleep: int | None = None,
    ) -> None:  # fmt: skip
        """Grant the replicas with these indices."""
        replicas = tuple(
            ReplicaGrant(
                replica=replica_name(model, revision, index), revision=revision, resources=resources,
                placement=Placement(node="local", gpus=gpus), drain=index in drain,
            )
            for index in indices
        )  # fmt: skip
        grant = GrantDecided(model=model, uid=uid, revision=revision, wished=len(replicas), replicas=replicas,
                             asleep=asleep)  # fmt: skip
        await self.say(grant, epoch)

    async def observed(self, model: str = "echo") -> ReplicasObserved:
        """The newest state of a model."""
        async for record in self.log.read(Query(topic=Topic.REPLICAS, newest_per_key=True)):
            if record.envelope.data.model == model:
                state: ReplicasObserved = record.envelope.data
                return state
        return ReplicasObserved(model=model, uid="", replicas=())

    async def history(self, topic: Topic = Topic.REPLICAS) -> list[object]:
        """All data of a topic."""
        return [record.envelope.data async for record in self.log.read(Query(topic=topic))]

    async def until(self, holds: Callable[[ReplicasObserved], bool], model: str = "echo") -> ReplicasObserved:
        """The first state seen for which `holds`; fails with the last one after `PATIENCE`."""
        state = await self.observed(model)
        for _ in range(int(PATIENCE / 0.01)):
            if holds(state):
                return state
            await asyncio.sleep(0.01)
            state = await self.observed(model)
        raise AssertionError(f"not within {PATIENCE:g} s; the last state was {state}")

    async def ready(self, count: int = 1, model: str = "echo") -> ReplicasObserved:
        """Wait until so many replicas are ready, and no other exists."""
        return await self.until(lambda state: states(state) == [ReplicaState.READY] * count, model)

    async def gone(self, model: str = "echo") -> ReplicasObserved:
        """Wait until there is none."""
        return await self.until(lambda state: not state.replicas, model)

    async def close(self) -> None:
        """Stop the cluster, its log, its folder."""
        await self.cluster.stop(Seconds(0.0))
        await self.log.close()
        self.folder.close()


def states(observed: ReplicasObserved) -> list[ReplicaState]:
    """The states of its replicas."""
    return [replica.state for replica in observed.replicas]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until_dead(pids: Iterable[int], within: float) -> float:
    """Seconds until all of them are dead; fails after `within`."""
    clock = SystemClock()
    began = clock.now()
    while any(alive(pid) for pid in pids):
        assert clock.now() - began < within, f"still alive: {[pid for pid in pids if alive(pid)]}"
        await asyncio.sleep(0.01)
    return clock.now() - began


PYTHON = sys.executable
