"""The whole control loop in one simulated world: real desk, autoscaler, allocator and cluster adapter, a log that
fails, clients of several models, and everything that goes wrong, drawn from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from autoscaler.core.gateways import QUIET_AFTER
from autoscaler.loop import Autoscaler
from autoscaler.settings import AutoscalerSettings
from deploy.local.settings import LocalSettings
from deploy.spec.declare import declare, delete, override
from events.adapters.memory import MemoryEventLog
from events.log import LogUnavailable
from events.names import GatewayName
from events.types.models import ModelDeclared, Override
from events.units import Seconds
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings
from runtime.core.policy import Cancels
from runtime.desk.desk import Desk, DeskSettings
from tests.support.faulty_log import FaultyLog, LogFaults
from tests.support.simulated_checks import Ledger, Since
from tests.support.simulated_clients import Client, Request
from tests.support.simulated_cluster import (
    FOLDER,
    Behaviour,
    Engine,
    Machine,
    SimulatedCluster,
    machine_of,
    simulated_machine,
)
from tests.support.simulated_time import LoopClock

GIB = 1 << 30
TOTAL = 30.0
"""`timeouts.total` of every model: a drain ends by then, a hung engine is suspect by then."""


@dataclass(frozen=True)
class Hazards:
    """How much goes wrong. Pauses between two of a kind in seconds on average; 0: never."""

    crashes: float = 0.0
    hangs: float = 0.0
    changes: float = 0.0
    outages: float = 0.0
    restarts: float = 0.0
    fails_to_start: float = 0.0
    log: LogFaults = field(default_factory=LogFaults)


@dataclass(frozen=True)
class Setup:
    """One world."""

    seed: int
    models: int = 4
    cpu: float = 16.0
    gpus: int = 4
    keeps: int = 100_000
    """Records of each topic that the log keeps (of states the newest ones of all keys besides)."""
    hazards: Hazards = field(default_factory=Hazards)

    @property
    def patience(self) -> float:
        """Seconds in which the loop must have acted on what it was told: what the faults cost it at most, and some."""
        log = self.hazards.log
        return 3.0 + 20.0 * log.delay + (12.0 if log.loses_news else 0.0) + (8.0 if self.hazards.restarts else 0.0)


class World:
    """Use `world`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = LoopClock()
        self.drawn = random.Random(setup.seed)
        self.faults = replace(setup.hazards.log)
        self.memory = MemoryEventLog(self.clock, keep=setup.keeps)
        self.machine = Machine(
            self.clock, random.Random(f"{setup.seed}/machine"), machine_of(setup.cpu, 64 * GIB, setup.gpus)
        )
        self.ledger = Ledger(self.machine, self.clock)
        self.machine.began.append(self.ledger.begins)
        self.machine.ended += [self.ledger.ends, self._engine_ended]
        self.clients: dict[str, Client] = {}
        self.endings: Counter[str] = Counter()
        self.busy_at: dict[str, float] = {}
        """When each model last had a request."""
        self._count = 0
        self._writers: dict[str, EventWriter] = {}
        self._admin = self.log_of("admin")
        self.desk = Desk(
            self.log_of("gateway"), self.clock, self.writer("gateway"),
            DeskSettings(gateway=GatewayName("gw"), boot="boot-1"),
        )  # fmt: skip
        self.autoscaler = self._new_autoscaler()
        self.allocator = self._new_allocator()
        self.cluster = SimulatedCluster(
            self.machine, self.log_of("cluster"), self.writer("cluster"), self.clock, FOLDER, LocalSettings()
        )
        self._allocating: asyncio.Task[None]

    def log_of(self, role: str) -> FaultyLog:
        """The log as one role sees it."""
        drawn = random.Random(f"{self.setup.seed}/{role}")
        return FaultyLog(self.memory, self.clock, self.faults, drawn, self.ledger.writes)

    def writer(self, role: str) -> EventWriter:
        """With ids that are the same in each run of a seed."""
        if role not in self._writers:
            numbers = iter(range(1 << 60))
            self._writers[role] = EventWriter(f"relume/{role}/sim", self.clock, lambda: f"{role}-{next(numbers)}")
        return self._writers[role]

    def _new_autoscaler(self) -> Autoscaler:
        settings = AutoscalerSettings(owner=f"sim/{self._next('autoscaler')}")
        return Autoscaler(self.log_of("autoscaler"), self.clock, self.writer("autoscaler"), settings)

    def _new_allocator(self) -> Allocator:
        settings = AllocatorSettings(leader=f"sim/{self._next('allocator')}")
        return Allocator(self.log_of("allocator"), self.clock, self.writer("allocator"), settings)

    def _next(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    # Its life

    async def start(self) -> None:
        """As `relume up` does, in its order."""
        self._allocating = asyncio.create_task(self.allocator.run())
        await self.autoscaler.start()
        await self.autoscaler.wait_history_read()
        await self.cluster.start()
        await self.desk.start()

    async def close(self) -> None:
        """As `relume up` does, in its order."""
        self.desk.shut_down()
        await self.autoscaler.close()
        await self._end_allocator()
        await self.cluster.stop(Seconds(0.0))
        await self.desk.close()
        await self.memory.close()

    async def _end_allocator(self) -> None:
        self._allocating.cancel()
        await asyncio.gather(self._allocating, return_exceptions=True)

    def check_alive(self) -> None:
        """No role has ended."""
        if self._allocating.done():
            raise self.ledger.breach("the allocator has ended") from self._allocating.exception()
        for task in (*self.autoscaler._tasks, *self.desk._tasks):
            if task.done():
                raise self.ledger.breach(f"a role has ended: {task.get_name()}") from task.exception()
        if self.cluster._broken.done():
            raise self.ledger.breach("the cluster has broken") from self.cluster._broken.exception()
        if self.desk.counts.commands_failed:
            raise self.ledger.breach("a command of the desk was not carried out")

    async def restart(self, what: str) -> None:
        """A new autoscaler or allocator takes over from the old one."""
        self.ledger.say(f"restart  {what}")
        if what == "allocator":
            await self._end_allocator()
            self.allocator = self._new_allocator()
            self._allocating = asyncio.create_task(self.allocator.run())
        else:
            await self.autoscaler.close()
            self.autoscaler = self._new_autoscaler()
            while True:
                try:
                    await self.autoscaler.start()
                except LogUnavailable:
                    await self.autoscaler.close()
                    await asyncio.sleep(0.5)
                    self.autoscaler = self._new_autoscaler()
                else:
                    return

    # What people do

    async def _declare(self, changed: ModelDeclared) -> None:
        while True:
            try:
                await self._admin.append([self.writer("admin").envelope(changed)])
            except LogUnavailable:
                await asyncio.sleep(0.5)
            else:
                return

    async def apply(self, name: str, **spec: object) -> None:
        """Declare a model, or change it."""
        before = self.ledger.declared.get(name)
        document = {
            "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name},
            "spec": {"engine": {"type": "simulated"}, "timeouts": {"total": f"{TOTAL:g}s"}, **spec},
        }  # fmt: skip
        changed = declare(before, document, self._next("uid"))
        if changed is not before:
            await self._declare(changed)

    async def delete(self, name: str) -> None:
        """Declare it no longer."""
        before = self.ledger.declared[name]
        if not before.deleted:
            await self._declare(delete(before))

    async def scale(self, name: str, replicas: int | None, seconds: float) -> None:
        """Set a person's number, or take it away."""
        before = self.ledger.declared[name]
        if not before.deleted:
            until = self.clock.now() + seconds
            wanted = None if replicas is None else Override(replicas=replicas, until=until)
            await self._declare(override(before, wanted))

    def ask(self, model: str, drawn: random.Random, **fixed: object) -> Client:
        """A request arrives."""
        wanted = Request(
            name=self._next("q"), model=model, caller=drawn.choice("abc"), seconds=drawn.choice((0.05, 0.3, 1.0, 4.0)),
            wait=drawn.choice((3.0, 15.0, 60.0)), stream=drawn.random() < 0.5, total=TOTAL,
            leaves=drawn.expovariate(0.5) if drawn.random() < 0.2 else None,
        )  # fmt: skip
        client = Client(replace(wanted, **fixed), self.desk, self.machine, self._client_ended)  # type: ignore[arg-type]  # fields of Request
        self.clients[client.wanted.name] = client
        self.busy_at[model] = self.clock.now()
        client.start()
        return client

    def _client_ended(self, client: Client) -> None:
        del self.clients[client.wanted.name]
        self.busy_at[client.wanted.model] = self.clock.now()
        self.endings[client.how] += 1

    def _engine_ended(self, engine: Engine) -> None:
        for client in [one for one in self.clients.values() if one.engine is engine]:
            client.engine_ended()


@asynccontextmanager
async def world(setup: Setup) -> AsyncIterator[World]:
    """A started world; closed at the end, with nothing left."""
    with ExitStack() as stack:
        made = World(setup)
        simulated_machine(made.machine, stack)
        await made.start()
        try:
            yield made
        finally:
            await made.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        assert not made.machine.engines, f"engines are left: {made.machine.engines}"


class Watcher:
    """Looks at a world each second: what must happen within a bound has happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._starved = Since(world.clock)
        self._idle = Since(world.clock)
        self.keep_alive: dict[str, float] = {}

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            self.look()

    def look(self) -> None:
        """Once."""
        world = self._world
        world.check_alive()
        now = world.clock.now()
        for client in world.clients.values():
            if client.waits and now > client.deadline + 1.0:
                raise world.ledger.breach(f"{client.wanted} waits beyond its deadline")
        away = world.faults.away
        for model, seconds in self._starved.hold(() if away else self._starving()).items():
            if seconds > world.setup.patience:
                raise world.ledger.breach(f"{model} has waited {seconds:g} s for a replica that nothing hinders")
        for model, there in self._idle.hold(() if away else self._idling()).items():
            seconds = min(there, now - world.busy_at.get(model, 0.0))  # also who is refused at once has asked
            kept = self.keep_alive.get(model, 0.0) + TOTAL + (QUIET_AFTER if world.faults.loses_news else 0.0)
            if seconds > kept + world.setup.patience:
                raise world.ledger.breach(f"nobody has asked for {model} for {seconds:g} s, and it is still there")

    def _starving(self) -> list[str]:
        """Models with requests that wait, without a replica, though one would fit and nobody else comes first."""
        world, ledger = self._world, self._world.ledger
        waiting = {client.wanted.model for client in world.clients.values() if client.waits}
        cpu, memory, cards = ledger.free()
        found = []
        for model in sorted(waiting):
            declared = ledger.declared[model]
            spec = declared.spec["resources"]
            fits = spec["cpu"] <= cpu and memory >= (1 << 30) and spec["gpus"] <= cards  # type: ignore[index,call-overload,operator]  # JSON
            runs = any(engine.model == model for engine in world.machine.engines.values())
            observed = ledger.observed.get(model)
            fails = observed is not None and (observed.failures > 0 or observed.retry_at is not None)
            free_to_go = declared.override is None and not declared.deleted and not self._comes_first(model)
            if fits and free_to_go and not runs and not fails:
                found.append(model)
        return found

    def _comes_first(self, model: str) -> bool:
        """Whether a model of higher priority is short: it may have a claim on what this one needs."""
        declared = self._world.ledger.declared
        mine = declared[model].spec["priority"]
        return any(
            grant.shortage is not None and declared[other].spec["priority"] > mine  # type: ignore[operator]  # JSON
            for other, grant in self._world.ledger.grants.items()
            if other != model
        )

    def _idling(self) -> list[str]:
        """Models that nobody asks for, and that are there."""
        world, ledger = self._world, self._world.ledger
        busy = {client.wanted.model for client in world.clients.values()}
        there = {engine.model for engine in world.machine.engines.values()}
        there |= {model for model, grant in ledger.grants.items() if grant.replicas}
        return [
            model for model in sorted(there - busy)
            if ledger.declared[model].override is None or ledger.declared[model].override.until < world.clock.now()  # type: ignore[union-attr]  # it is not None
        ]  # fmt: skip


def behaviour(drawn: random.Random, hazards: Hazards) -> Behaviour:
    """How a model's engines are."""
    low = drawn.choice((0.1, 0.5, 2.0))
    return Behaviour(
        start=(low, low * drawn.choice((1.0, 3.0))), stop=drawn.choice((0.05, 1.0)),
        fails_to_start=hazards.fails_to_start if drawn.random() < 0.5 else 0.0, cancels=drawn.choice(list(Cancels)),
    )  # fmt: skip


async def forever(pause: float, drawn: random.Random) -> AsyncIterator[None]:
    """Again and again, after pauses of `pause` seconds on average; never when it is 0."""
    while pause:
        await asyncio.sleep(drawn.expovariate(1.0 / pause))
        yield None


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for their end; raise what one has failed of."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
