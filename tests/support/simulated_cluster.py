"""The local cluster with engines that exist on simulated time only.

Everything that decides is the product's: `deploy.local`'s view, plan, reconciler, replicas, back-off and publisher.
Simulated are the machine (`Machine`), processes, starts and the looks at them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from deploy.local.addresses import Ports
from deploy.local.backoff import Failure
from deploy.local.cluster import LocalCluster
from deploy.local.cores import Cores
from deploy.local.declared import Declared, Reason
from deploy.local.folder import DataFolder
from deploy.local.keeping import NoKeeper
from deploy.local.places import Places
from deploy.local.prober import HttpProber
from deploy.local.process import Exit
from deploy.local.reconciler import Reconciler
from deploy.local.replica import Replica
from deploy.local.settings import LocalSettings
from deploy.local.starting import Listener, Prepared, StartFailed, Tools
from events.clock import Clock
from events.types.grants import ReplicaGrant
from events.types.metrics import ReplicaMetrics
from events.types.replicas import Card, CardsObserved, Phase, ReplicaState
from events.units import Instant, Seconds
from runtime.adapters.registry import engine_for
from runtime.core.policy import Cancels
from runtime.ports import Abilities, Launch, LaunchRequest, Probe


@dataclass
class Behaviour:
    """How a model's engines are. Seconds, and probabilities 0 to 1."""

    start: tuple[float, float] = (0.2, 2.0)
    stop: float = 0.2
    fails_to_start: float = 0.0
    cancels: Cancels = Cancels.ALWAYS


@dataclass(eq=False)
class Engine:
    """One process of an engine, from its start to its end."""

    grant: ReplicaGrant
    model: str
    uid: str
    slots: int
    port: int
    pid: int
    behaviour: Behaviour
    running: set[str] = field(default_factory=set)
    """Requests that it works on."""
    hung: bool = False
    ready: bool = False


class Machine:
    """All engines that exist, and what they may use together. `check` is called whenever one begins."""

    def __init__(self, clock: Clock, drawn: random.Random, cards: CardsObserved) -> None:
        self.clock = clock
        self.drawn = drawn
        self.cards = cards
        self.behaviours: dict[str, Behaviour] = {}
        self.engines: dict[str, Engine] = {}
        """By the name of the replica."""
        self.processes: dict[str, SimulatedProcess] = {}
        self.began: list[Callable[[Engine], None]] = []
        self.ended: list[Callable[[Engine], None]] = []
        self._count = 1000

    def number(self) -> int:
        """One that no other call gives, for ports and pids."""
        self._count += 1
        return self._count

    def at(self, port: int) -> Engine | None:
        """The engine that listens there."""
        return next((engine for engine in self.engines.values() if engine.port == port), None)

    def crash(self, replica: str) -> None:
        """The engine ends by itself."""
        process = self.processes.get(replica)
        if process is not None:
            process.end(Exit(signal=9), 0.0)


class SimulatedProcess:
    """See `deploy.local.process.ReplicaProcess`."""

    def __init__(self, machine: Machine, engine: Engine) -> None:
        loop = asyncio.get_running_loop()
        self.pid = engine.pid
        self.shim_pid = engine.pid
        self.engine = engine
        self._machine = machine
        self._exit: asyncio.Future[Exit] = loop.create_future()
        self._gone: asyncio.Future[Exit] = loop.create_future()
        machine.engines[engine.grant.replica] = engine
        machine.processes[engine.grant.replica] = self
        for hear in machine.began:
            hear(engine)

    def end(self, how: Exit, after: float) -> None:
        """It ends so many seconds from now; a second order that is sooner stands too."""
        asyncio.get_running_loop().call_later(after, self._end, how)

    def _end(self, how: Exit) -> None:
        if self._exit.done():
            return
        self._exit.set_result(how)
        self.engine.ready = False
        for hear in self._machine.ended:
            hear(self.engine)
        # what it has forked lives a moment longer: its resources are not free before that
        asyncio.get_running_loop().call_later(0.01, self._be_gone, how)

    def _be_gone(self, how: Exit) -> None:
        del self._machine.engines[self.engine.grant.replica]
        del self._machine.processes[self.engine.grant.replica]
        self._gone.set_result(how)

    def terminate(self) -> None:
        self.end(Exit(code=0), self.engine.behaviour.stop)

    def kill(self) -> None:
        self.end(Exit(signal=9), 0.001)

    def abandon_shim(self) -> None:
        self.end(Exit(), 0.0)

    async def wait_exit(self) -> Exit:
        return await asyncio.shield(self._exit)

    async def wait_gone(self) -> Exit:
        return await asyncio.shield(self._gone)


class SimulatedStart:
    """See `deploy.local.starting.Start`: the same phases, on simulated time."""

    machine: Machine

    def __init__(self, tools: Tools, declared: Declared, grant: ReplicaGrant, listener: Listener) -> None:
        self._tools = tools
        self._declared = declared
        self._grant = grant
        self._listener = listener

    async def run(self) -> SimulatedProcess:
        """Raises StartFailed."""
        if self._tools.places.full:
            self._listener.entered(Phase.PLACE)
        place = await self._tools.places.take()
        try:
            return await self._attempt()
        finally:
            place.give_back()

    async def _attempt(self) -> SimulatedProcess:
        machine, declared, grant = self.machine, self._declared, self._grant
        behaviour = machine.behaviours[declared.model]
        self._listener.entered(Phase.SPAWN)
        wanted = LaunchRequest(
            model=declared.model, replica=grant.replica, host="127.0.0.1", port=machine.number(), slots=declared.slots,
        )  # type: ignore[arg-type]  # a replica's name  # fmt: skip
        abilities = Abilities(cancels=behaviour.cancels)
        self._listener.prepared(Prepared(wanted, Launch(("engine",)), Probe("/health", "/warm", b""), abilities))
        engine = Engine(
            grant, declared.model, declared.uid, declared.slots, wanted.port, machine.number(), behaviour
        )  # fmt: skip
        seconds = machine.drawn.uniform(*behaviour.start)
        fails = machine.drawn.random() < behaviour.fails_to_start
        spawning = asyncio.get_running_loop().create_task(self._spawn(engine))
        self._listener.spawning(spawning)  # type: ignore[arg-type]  # it quacks
        process = await asyncio.shield(spawning)
        for phase, part in ((Phase.LOAD, 0.7), (Phase.WARMUP, 0.3)):
            self._listener.entered(phase)
            if fails and phase is Phase.WARMUP:
                process.end(Exit(code=3), 0.0)
            await self._unless_exit(process, seconds * part)
        engine.ready = True
        return process

    async def _spawn(self, engine: Engine) -> SimulatedProcess:
        await asyncio.sleep(0.02)
        return SimulatedProcess(self.machine, engine)

    async def _unless_exit(self, process: SimulatedProcess, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                ended = await process.wait_exit()
        except TimeoutError:
            return
        await process.wait_gone()
        raise StartFailed(Reason.EXITED_WHILE_STARTING, f"{ended}; simulated")


class SimulatedCare:
    """See `deploy.local.care.Care`: metrics, and a check of suspects, without HTTP."""

    def __init__(self, machine: Machine, settings: LocalSettings, reconciler: Reconciler, news: Callable[[object], None]
                 ) -> None:  # fmt: skip
        self._machine = machine
        self._settings = settings
        self._reconciler = reconciler
        self._news = news

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def read_all_metrics(self) -> None:
        clock = self._machine.clock
        while True:
            for replica in self._reconciler.replicas():
                engine = self._machine.engines.get(replica.name)
                if replica.state is ReplicaState.READY and engine is not None:
                    self._news(
                        ReplicaMetrics(
                            model=engine.model, replica=replica.name, revision=engine.grant.revision,
                            running=float(len(engine.running)),
                        )
                    )  # fmt: skip
            await clock.sleep_until(Instant(clock.now() + self._settings.metrics_every))

    async def check_suspect(self, replica: Replica, reason: str) -> None:
        await asyncio.sleep(self._settings.suspect_bound)
        engine = self._machine.engines.get(replica.name)
        serving = replica.state in (ReplicaState.READY, ReplicaState.DRAINING)
        if serving and engine is not None and engine.hung and engine.pid == (replica.process and replica.process.pid):
            replica.fail(Reason.UNRESPONSIVE, f"suspected ({reason}), and no answer")


class SimulatedCluster(LocalCluster):
    """`LocalCluster` on a simulated machine. Use it inside `simulated_machine`."""

    def __init__(self, machine: Machine, *parts: Any) -> None:
        super().__init__(*parts)
        self._machine = machine

    async def _take_inventory(self) -> CardsObserved:
        return self._machine.cards

    def _wire(self, cards: CardsObserved) -> None:
        settings = self._settings
        self._prober = HttpProber(self._clock)
        tools = Tools(
            clock=self._clock, settings=settings, folder=self._folder, ports=Ports(), cores=Cores(()),
            places=Places(settings.start_places or 8, settings.start_place_bound, self._clock), prober=self._prober,
            engine_for=engine_for, keeper=NoKeeper(), real_cards=frozenset(), berths=self._berths,
        )  # fmt: skip
        self._wired = True
        self._training.wire(tools.cores, tools.ports, tools.real_cards, self._spawn)
        self._reconciler = Reconciler(tools, self._view, self._alarms, self._publisher, self._spawn)
        care: Any = SimulatedCare(self._machine, settings, self._reconciler, self._publisher.news)
        self._care = care


def simulated_machine(machine: Machine, stack: ExitStack) -> None:
    """Until the stack unwinds, replicas start on `machine`, and nobody looks for real processes or files."""

    async def failure(replica: Replica) -> Failure:
        verdict = replica.verdict
        assert verdict is not None
        return Failure(replica.created_at, str(verdict.reason), verdict.message)

    start = type("Start", (SimulatedStart,), {"machine": machine})
    for where, what in (
        ("deploy.local.replica.Start", start), ("deploy.local.replica.Replica.failure", failure),
        ("deploy.local.cluster.kill_marked", lambda *_: []), ("deploy.local.cluster.prune_logs", lambda *_: 0),
    ):  # fmt: skip
        stack.enter_context(mock.patch(where, what))


def machine_of(cpu: float, memory_bytes: int, gpus: int) -> CardsObserved:
    """What a machine has."""
    cards = tuple(Card(id=f"gpu-{index}", virtual=True) for index in range(gpus))
    return CardsObserved(node="local", cpu=cpu, memory_bytes=memory_bytes, cards=cards)


FOLDER = DataFolder(Path("/nonexistent"), Path("/nonexistent/logs"), -1)
"""Where replicas would log; nothing is written."""

GRACE = Seconds(5.0)
