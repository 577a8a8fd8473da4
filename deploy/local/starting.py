"""One start of a replica: from nothing to its first token, phase by phase, or to the reason why not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.errors import CacheError
from coldstart.core.cache.transfer import Transferred
from deploy.local.addresses import NoFreePort, Ports, is_conflict
from deploy.local.ahead import Word, beside
from deploy.local.cores import Cores
from deploy.local.declared import Declared, Reason
from deploy.local.environment import Marks, child_environment
from deploy.local.folder import DataFolder
from deploy.local.gpu_limits import GpuLimits
from deploy.local.keeping import Had, Keeper, reason_of
from deploy.local.logs import RUN_MARK, log_path, tail
from deploy.local.places import Places
from deploy.local.process import CannotStart, Door, Exit, Order, ReplicaProcess, start_process
from deploy.local.settings import LocalSettings
from deploy.local.sleeping import Berths
from events.clock import Clock
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import Phase
from events.units import Seconds, format_instant
from runtime.adapters.batching import behind, counted, in_front
from runtime.core.golden import Said, is_steady, said
from runtime.engines.awaiting import DESCRIPTORS_MOST, Paths
from runtime.ports import Abilities, Call, Engine, Launch, LaunchRequest, Probe
from runtime.spec import EngineType

T = TypeVar("T")

CONFLICTS = 3
"""Starts on another port when somebody took the first one."""
TAIL_LINES = 50
SLOTS_BOUND = Seconds(10.0)
"""For the engine to tell its parallelism; one that does not tell is believed."""


class StartFailed(Exception):
    """The replica did not become ready."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Prober(Protocol):
    """Looks at an engine over HTTP. What waits has no deadline of its own: the start's progress is watched."""

    async def wait_listening(self, host: str, port: int) -> None:
        """Return when a connection is accepted."""

    async def wait_healthy(self, host: str, port: int, path: str) -> object | None:
        """Return when `path` answers 200: its parsed JSON, None when it is none."""

    async def warm_up(self, host: str, port: int, probe: Probe, hear: Callable[[bytes], None] | None = None) -> str:
        """Send the one-token request until it is answered. Empty when with 200, which `hear` has; else why it will
        never be."""

    async def tell(self, host: str, port: int, call: Call, bound: Seconds) -> str:
        """POST it, once; why it was not done within `bound`, or empty."""

    async def read(self, host: str, port: int, path: str, bound: Seconds) -> object | None:
        """The parsed JSON answer of `path`; None when there is none within `bound`."""

    async def check(self, host: str, port: int, path: str, bound: Seconds) -> bool:
        """Whether `path` answers 200 within `bound`."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What all replicas of a cluster share."""

    clock: Clock
    settings: LocalSettings
    folder: DataFolder
    ports: Ports
    cores: Cores
    places: Places
    prober: Prober
    engine_for: Callable[[EngineType], Engine]
    keeper: Keeper
    real_cards: frozenset[str]
    berths: Berths
    limits: GpuLimits | None = None
    """What keeps parts of cards to their memory; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A start whose options are right: what to run and how to look at it."""

    wanted: LaunchRequest
    launch: Launch
    probe: Probe
    abilities: Abilities


@dataclass(frozen=True, slots=True)
class Waiting:
    """An engine that waits for its weights."""

    process: ReplicaProcess
    prepared: Prepared


class Listener(Protocol):
    """Hears how the start gets on (the replica that starts)."""

    def entered(self, phase: Phase) -> None:
        """A phase began, and those before ended."""

    def beside(self, phase: Phase) -> None:
        """A phase began, and the one before goes on."""

    def left(self, phase: Phase) -> None:
        """A phase ended; another goes on."""

    def prepared(self, prepared: Prepared) -> None:
        """The port is chosen and the engine's abilities are known."""

    def fetching(self, seen: Transferred | None) -> None:
        """How its weights get here; None: their fetch waits for its turn."""

    def has(self, had: Had) -> None:
        """Its weights are here, and the listener's to end when no process of the replica is left."""

    def has_adapter(self, had: Had) -> None:
        """Likewise a LoRA adapter."""

    def answered(self, golden: Said | None) -> None:
        """What its first token is; None: it cannot be compared with a later one."""

    def spawning(self, process: asyncio.Task[ReplicaProcess]) -> None:
        """An engine is about to run: it must be cleared away whatever happens to this start."""


def prepare(
    tools: Tools, declared: Declared, grant: ReplicaGrant, port: int, weights_from: int | None = None
) -> Prepared:
    """How a replica is run on a port, and looked at. Raises ValueError for options that are wrong.

    `weights_from`: the descriptor over which its engine will hear where its weights are.
    """
    engine = tools.engine_for(declared.engine)
    wanted = LaunchRequest(
        model=declared.model, replica=ReplicaName(grant.replica), host=tools.settings.host, port=port,
        slots=declared.slots, weights=declared.weights, cpu=grant.resources.cpu, gpus=grant.placement.gpus,
        options=declared.options, adapters=tuple((one.name, one.path) for one in declared.adapters),
        weights_from=weights_from,
    )  # fmt: skip
    probe, abilities = engine.probe(wanted), engine.abilities(wanted)
    if declared.batching is None:
        return Prepared(wanted, engine.launch(wanted), probe, abilities)
    behind_port = tools.ports.choose()
    launch = engine.launch(behind(wanted, behind_port))
    front = in_front(launch, wanted, behind_port, declared.batching, declared.timeouts.total)
    return Prepared(wanted, front, probe, counted(abilities))


class Start:
    """A start of one replica. `run` returns when it is ready."""

    def __init__(self, tools: Tools, declared: Declared, grant: ReplicaGrant, listener: Listener) -> None:
        self._tools = tools
        self._declared = declared
        self._grant = grant
        self._listener = listener
        self._keep: tuple[int, ...] = ()
        self._coming = asyncio.Event()
        self._word: Word | None = None
        self._spawning_ahead = False
        self._log = log_path(tools.folder.logs, grant.replica)

    async def run(self) -> ReplicaProcess:
        """Start it. Raises StartFailed."""
        try:
            waiting = await self._fetched()
            return await self._started(waiting)
        finally:
            if self._word is not None:
                self._word.close()

    async def _fetched(self) -> Waiting | None:
        """Have all weights here; the engine that was spawned meanwhile, where that could be."""
        declared = self._declared
        if declared.wanted is None and all(one.wanted is None for one in declared.adapters):
            return None
        self._listener.entered(Phase.FETCH)
        return await beside(self._fetch(), self._coming, self._ahead if self._awaits_weights() else None)

    def _awaits_weights(self) -> bool:
        """Whether its engine can be spawned before they are here. Options that are wrong are told of later. Of more
        adapters than one message takes uses for, the engine is spawned after them, and inherits these."""
        if len(self._declared.adapters) >= DESCRIPTORS_MOST:
            return False
        try:
            return prepare(self._tools, self._declared, self._grant, 0, weights_from=0).abilities.awaits_weights
        except (NoFreePort, ValueError):
            return False

    async def _ahead(self, came: asyncio.Future[Waiting | None]) -> NoReturn:
        """Spawn the engine while bytes come, as far as it gets without them, unless many others start. StartFailed: it
        could not be spawned, or ended."""
        if self._tools.places.full:
            came.set_result(None)
            await asyncio.Event().wait()  # until the fetch is over
        place = await self._tools.places.take()
        try:
            self._word = word = Word()
            prepared = self._prepare_for(word.descriptor)
            self._listener.beside(Phase.SPAWN)
            self._spawning_ahead = True
            self._listener.prepared(prepared)
            process = await self._spawn(prepared, (word.descriptor,))
            word.inherited()
            await self._unless_exit(process, word.ready())
            self._spawning_ahead = False
            self._listener.left(Phase.SPAWN)
        finally:
            place.give_back()
        came.set_result(Waiting(process, prepared))
        raise await self._exited(process, await process.wait_exit())

    async def _started(self, waiting: Waiting | None) -> ReplicaProcess:
        """The engine, ready, with weights that are here."""
        if self._tools.places.full:
            self._listener.entered(Phase.PLACE)
        place = await self._tools.places.take()
        try:
            self._listener.entered(Phase.SPAWN)
            for _ in range(CONFLICTS):
                try:
                    return await (self._attempt() if waiting is None else self._handed(waiting))
                except _PortTaken:
                    waiting = None
                    self._listener.entered(Phase.SPAWN)
            raise StartFailed(Reason.CANNOT_START, f"its port was taken by others {CONFLICTS} times in a row")
        finally:
            place.give_back()

    async def _fetch(self) -> None:
        """Have weights and adapters on this node. No place is taken meanwhile: bytes that arrive need no core."""
        declared = self._declared
        if declared.wanted is not None:
            had = await self._have(declared.wanted)
            self._listener.has(had)
            self._keep += (had.use.descriptor,)
            declared = replace(declared, weights=str(had.path))
        adapters = []
        for one in declared.adapters:
            if one.wanted is not None:
                had = await self._have(one.wanted)
                self._listener.has_adapter(had)
                self._keep += (had.use.descriptor,)
                one = replace(one, path=str(had.path))  # noqa: PLW2901 - the same adapter, where it lies now
            adapters.append(one)
        self._declared = replace(declared, adapters=tuple(adapters))
        if self._spawning_ahead:
            self._listener.left(Phase.FETCH)

    async def _have(self, wanted: Wanted) -> Had:
        try:
            return await self._tools.keeper.have(wanted, self._hear)
        except CacheError as error:
            raise StartFailed(reason_of(error), f"{error}; {error.remedy}" if error.remedy else str(error)) from error
        except OSError as error:
            raise StartFailed(reason_of(error), f"the node's weight cache: {error}") from error

    def _hear(self, seen: Transferred | None) -> None:
        """They are not here: there is time to spawn the engine."""
        self._coming.set()
        self._listener.fetching(seen)

    async def _check_weights(self, abilities: Abilities) -> None:
        if not abilities.reads_weights:
            return
        for what, path in (
            ("the weights", self._declared.weights),
            *((f"the weights of adapter {one.name},", one.path) for one in self._declared.adapters),
        ):
            if path and not await asyncio.to_thread(os.access, path, os.R_OK):
                there = "cannot be read" if await asyncio.to_thread(Path(path).exists) else "do not exist"
                raise StartFailed(Reason.WEIGHTS_NOT_FOUND, f"{what} {path} {there}")

    async def _attempt(self) -> ReplicaProcess:
        """One try on one port."""
        prepared = self._prepare_for()
        await self._check_weights(prepared.abilities)
        self._listener.prepared(prepared)
        return await self._loaded(await self._spawn(prepared, self._keep), prepared)

    async def _handed(self, waiting: Waiting) -> ReplicaProcess:
        """The same with an engine that runs already: it is told where its weights are, and given their uses."""
        prepared, declared = waiting.prepared, self._declared
        await self._check_weights(prepared.abilities)
        assert self._word is not None, "it waits for it"
        self._word.give(Paths(declared.weights, tuple(one.path for one in declared.adapters)), self._keep)
        return await self._loaded(waiting.process, prepared)

    async def _loaded(self, process: ReplicaProcess, prepared: Prepared) -> ReplicaProcess:
        """From spawned to the first token."""
        host, port = prepared.wanted.host, prepared.wanted.port
        prober = self._tools.prober
        await self._unless_exit(process, prober.wait_listening(host, port))
        self._listener.entered(Phase.LOAD)
        health = await self._unless_exit(process, prober.wait_healthy(host, port, prepared.probe.health_path))
        self._listener.entered(Phase.WARMUP)
        answers = {prepared.probe.health_path: health} if health is not None else {}
        cold, mismatch = await self._unless_exit(process, self._first_token(prepared, answers))
        if cold:
            raise StartFailed(Reason.WARMUP_FAILED, cold)
        if mismatch:
            raise StartFailed(Reason.SLOTS_MISMATCH, mismatch)
        return process

    async def _first_token(self, prepared: Prepared, answers: dict[str, object]) -> tuple[str, str]:
        """The one-token request and, beside it, the engine's count of slots: what is wrong with each, or empty."""
        return await asyncio.gather(self._warm_up(prepared), self._compare_slots(prepared, answers))

    def _prepare_for(self, weights_from: int | None = None) -> Prepared:
        try:
            return prepare(self._tools, self._declared, self._grant, self._tools.ports.choose(), weights_from)
        except NoFreePort as error:
            raise StartFailed(Reason.CANNOT_START, str(error)) from error
        except ValueError as error:  # pydantic's is one too
            raise StartFailed(Reason.INVALID_SPEC, str(error)) from error

    async def _spawn(self, prepared: Prepared, keep: tuple[int, ...]) -> ReplicaProcess:
        task = asyncio.get_running_loop().create_task(start_process(self._order(prepared, keep)))
        self._listener.spawning(task)
        try:
            return await asyncio.shield(task)
        except CannotStart as error:
            reason = Reason.COMMAND_NOT_FOUND if error.missing else Reason.CANNOT_START
            raise StartFailed(reason, str(error)) from error
        except OSError as error:  # no process, no memory, no descriptor for the shim itself
            raise StartFailed(Reason.CANNOT_START, f"the system gave no process: {error}") from error

    def _order(self, prepared: Prepared, keep: tuple[int, ...]) -> Order:
        tools, grant, wanted = self._tools, self._grant, prepared.wanted
        cards = tuple(grant.placement.gpus)
        devices, env = tuple(card for card in cards if card in tools.real_cards), prepared.launch.env
        marks = Marks(
            replica=grant.replica, data_dir=tools.folder.mark, port=wanted.port, cpu=grant.resources.cpu, cards=cards,
            devices=devices,
        )  # fmt: skip
        limits = {} if tools.limits is None else tools.limits.environment(grant.replica, grant.resources, devices, env)
        now = format_instant(tools.clock.now())
        return Order(
            argv=prepared.launch.argv,
            env=child_environment(os.environ, marks, {**env, **limits}),
            log_path=self._log,
            header=f"{RUN_MARK}{grant.replica} starts on port {wanted.port} at {now}: {prepared.launch.argv[0]}",
            log_bytes=tools.settings.log_bytes,
            grace=tools.settings.grace,
            orphan_grace=tools.settings.orphan_grace,
            niceness=tools.settings.niceness,
            cores=tools.cores.of(grant.replica),
            door=self._door(),
            keep=keep,
        )

    def _door(self) -> Door | None:
        within = self._tools.settings.adopt_within
        return Door(self._tools.folder.doors / self._grant.replica, within) if within > 0 else None

    async def _warm_up(self, prepared: Prepared) -> str:
        bound, probe, heard = self._tools.settings.warmup_bound, prepared.probe, list[bytes]()
        try:
            async with asyncio.timeout(bound):
                wrong = await self._tools.prober.warm_up(
                    prepared.wanted.host, prepared.wanted.port, probe, heard.append
                )
        except TimeoutError:
            return f"the one-token request was not answered within {bound:g} s"
        if heard:
            self._listener.answered(said(heard[0]) if is_steady(probe.warmup_body) else None)
        return wrong

    async def _compare_slots(self, prepared: Prepared, answers: dict[str, object]) -> str:
        """Ask the engine for its parallelism, where it tells."""
        path = prepared.abilities.busy_path
        if path:
            said = await self._tools.prober.read(prepared.wanted.host, prepared.wanted.port, path, SLOTS_BOUND)
            answers = answers if said is None else {**answers, path: said}
        return self._tools.engine_for(self._declared.engine).check_slots(answers, self._declared.slots)

    async def _unless_exit(self, process: ReplicaProcess, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or StartFailed when the engine ends first."""
        loop = asyncio.get_running_loop()
        working, exiting = loop.create_task(work), loop.create_task(process.wait_exit())
        try:
            await asyncio.wait({working, exiting}, return_when=asyncio.FIRST_COMPLETED)
            if not exiting.done():
                return working.result()
        finally:
            for task in (working, exiting):
                task.cancel()
            await asyncio.gather(working, exiting, return_exceptions=True)
        raise await self._exited(process, exiting.result())

    async def _exited(self, process: ReplicaProcess, exit_: Exit) -> Exception:
        """What it means that the engine ended; its last words count, so first let them all be written."""
        await process.wait_gone()
        lines = await asyncio.to_thread(tail, self._log, TAIL_LINES)
        if is_conflict(lines):
            return _PortTaken()
        last = next((line for line in reversed(lines) if line.strip()), "it wrote nothing")
        return StartFailed(Reason.EXITED_WHILE_STARTING, f"{exit_}; last line: {last[:300]}")


class _PortTaken(Exception):
    """Somebody bound the port before the engine."""
