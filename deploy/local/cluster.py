"""The local cluster: follows grants and makes the processes of this machine match them.

Level-based: an event only says about which model something changed; what is done follows from the whole view of that
model (`plan`). Everything that decides runs on the event loop without waiting, so a view is never half old. Each
replica has a task of its own, so one that hangs hinders nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deploy.local.addresses import Ports
from deploy.local.adopting import Survivor, survivors
from deploy.local.alarms import Alarms
from deploy.local.care import Care
from deploy.local.cores import Cores, own_cores
from deploy.local.folder import DataFolder
from deploy.local.gpu_limits import limits_of
from deploy.local.inventory import take_inventory, usable_cores
from deploy.local.keeping import Keeper, NoKeeper
from deploy.local.logs import prune_logs
from deploy.local.places import Places
from deploy.local.prober import HttpProber
from deploy.local.publisher import Publisher
from deploy.local.reconciler import Reconciler
from deploy.local.replica_logs import ReplicaLogFiles
from deploy.local.settings import LocalSettings
from deploy.local.sleeping import Berths
from deploy.local.stale import kill_marked
from deploy.local.starting import Tools
from deploy.local.training.local import LocalTraining, TrainingStats
from deploy.local.view import View
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.fence import is_older
from events.following import Follower
from events.log import Batch, EventLog, Query, Record, Start
from events.names import ModelName, Topic
from events.types.phases import ReplicaDrained, ReplicaSuspected
from events.types.replicas import CardsObserved, ReplicasObserved, ReplicaState
from events.types.training import TrainingObserved
from events.units import Instant, Seconds
from events.writer import EventWriter
from runtime.adapters.registry import engine_for

logger = logging.getLogger(__name__)

PRUNE_EVERY: Final = Seconds(600.0)
LAST_WORDS: Final = Seconds(3.0)
"""At the end: for the last states to be written."""
CLEAR_AWAY: Final = Seconds(15.0)
"""At the end: for processes that were killed to be gone, beyond the grace. The kernel may hold one in a driver."""
START_PLACES_A_CORE: Final = 4
KILLED_WITHIN: Final = 5.0
"""At the start: seconds for processes of an earlier run to be gone."""


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """Counts since the start, and levels now."""

    replicas: int = 0
    ready: int = 0
    starting: int = 0
    sleeping: int = 0
    sleeping_bytes: int = 0
    wakes: int = 0
    failed_wakes: int = 0
    starts: int = 0
    failures: int = 0
    refused_grants: int = 0
    dropped_news: int = 0
    failed_appends: int = 0
    stale_killed: int = 0
    adopted: int = 0


class LocalCluster:
    """The cluster adapter of one machine. Used on one event loop; the folder must be held (`open_folder`)."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock, folder: DataFolder, settings: LocalSettings
    ) -> None:
        self._event_log = log
        self._writer = writer
        self._clock = clock
        self._folder = folder
        self._settings = settings
        self.keeper: Keeper = NoKeeper()
        """The node's weights; who has a cache sets it before `start`."""
        self._view = View(settings.node, settings.drain_bound)
        self._alarms: Alarms[ModelName] = Alarms(clock)
        self._publisher: Publisher[ModelName] = Publisher(log, writer, clock, self._state)
        self._berths = Berths(settings.sleep_memory)
        self._training = LocalTraining(log, writer, clock, folder, settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stale_killed = 0
        self._adopted = 0
        self._survivors: dict[str, Survivor] = {}
        self._caught_up = asyncio.Event()
        self._told: dict[str, int] = {}
        """The offset of the newest grant that was told directly, by its key: as many as the log has keys."""
        self._wired = False
        self._cards: CardsObserved | None = None
        self._prober: HttpProber
        self._reconciler: Reconciler
        self._care: Care
        self._broken: asyncio.Future[None]

    async def start(self) -> None:
        """Clear up after an earlier run, say what there is, and follow grants. Returns when the log has been read.

        Raises StaleProcessesRemain, InventoryFailed, LogUnavailable, LogClosed.
        """
        self._broken = asyncio.get_running_loop().create_future()
        if self._settings.adopt_within > 0:
            self._survivors |= await survivors(self._event_log, self._folder, self._settings.node)
        spared = self._survivors.keys() | await self._training.find()
        stale = await asyncio.to_thread(kill_marked, self._folder.mark, None, KILLED_WITHIN, spared)
        self._stale_killed = len(stale)
        if stale:
            logger.warning(
                "killed %d processes of an earlier run: %s", len(stale), sorted({one.replica for one in stale})
            )
        self._cards = await self._take_inventory()
        await self._event_log.append([self._writer.envelope(self._cards)])
        self._wire(self._cards)
        async for record in self._event_log.read(Query(topic=Topic.MODELS)):
            self._view.fold(record)  # all revisions that are still known, not only the newest
            self._training.fold(record)
        await self._adopt()
        self._spawn(self._publisher.run())
        self._follow((Topic.PHASES, Topic.REPLICAS), Start(at="end"), self._take_news)
        self._follow((Topic.MODELS, Topic.GRANTS), Start(at="newest_per_key"), self._take_states)
        self._spawn(self._ring())
        self._spawn(self._prune())
        self._spawn(self._care.watch())
        self._spawn(self._care.read_all_metrics())
        await self._until_broken(self._caught_up.wait())

    def _state(self, name: ModelName) -> tuple[ReplicasObserved, AnyEnvelope | None]:
        return self._reconciler.state(name)

    def _wire(self, cards: CardsObserved) -> None:
        settings = self._settings
        places = settings.start_places or max(1, round(usable_cores() * START_PLACES_A_CORE))
        self._prober = HttpProber(self._clock)
        tools = Tools(
            clock=self._clock, settings=settings, folder=self._folder, ports=Ports(settings.host),
            cores=Cores(own_cores()), places=Places(places, settings.start_place_bound, self._clock),
            prober=self._prober, engine_for=engine_for, keeper=self.keeper,
            real_cards=frozenset(card.id for card in cards.cards if not card.virtual), berths=self._berths,
            limits=limits_of(settings.gpu_limiter, self._folder.path / "gpu-limits", cards.cards),
        )  # fmt: skip
        self._wired = True
        self._training.wire(tools.cores, tools.ports, tools.real_cards, self._spawn, tools.limits)
        self._reconciler = Reconciler(tools, self._view, self._alarms, self._publisher, self._spawn)
        self._care = Care(self._clock, settings, self._prober, self._reconciler.replicas, self._publisher.news)

    async def _adopt(self) -> None:
        """Go on with the replicas that outlived an earlier run; those that do not fit what is declared are ended."""
        for name, survivor in list(self._survivors.items()):
            if self._reconciler.adopt(survivor):
                del self._survivors[name]
                self._adopted += 1
        await self._end_survivors()
        if self._adopted:
            logger.info("took over %d replicas of an earlier run", self._adopted)

    async def _end_survivors(self) -> None:
        """Those that were found and not gone on with."""
        for survivor in self._survivors.values():
            survivor.process.terminate()
        await asyncio.gather(*(survivor.process.wait_gone() for survivor in self._survivors.values()))
        self._survivors.clear()

    async def _take_inventory(self) -> CardsObserved:
        settings = self._settings
        cards = await take_inventory(settings.node, 0 if settings.made_up else settings.gpus)
        cards = replace(cards, cards=settings.made_up or cards.cards)
        cpu, memory = self._settings.cpu, self._settings.memory_bytes
        return replace(
            cards, cpu=cards.cpu if cpu is None else cpu,
            memory_bytes=max(0, (cards.memory_bytes if memory is None else memory) - self._settings.sleep_memory),
        )  # fmt: skip

    async def stop(self, bound: Seconds, training: Seconds = Seconds(0.0)) -> None:
        """Drain all replicas, for at most `bound` seconds, then end them; return when no process is left.

        Training jobs are told to save and leave, for at most `training` seconds; then they are ended too.

        A replica that is drained (`replica.drained`) goes at once; with bound 0 none is waited for. The log must be
        open until this returns: the last states are written to it. What a driver holds in the kernel is waited for
        15 s and then left, which the log says. Also right after a start that failed, or a stop.
        """
        await self._end_survivors()
        if not self._wired:
            await self._training.stop(training)
            return
        saving = asyncio.create_task(self._training.stop(training), name="training stops")
        self._reconciler.close()
        for replica in self._reconciler.replicas():
            if replica.state is ReplicaState.READY and bound > 0:
                replica.drain()
            elif replica.state is not ReplicaState.DRAINING:
                replica.stop("relume stops")
            if replica.drained:
                replica.stop("drained")
        await self._until_none(bound)
        for replica in self._reconciler.replicas():
            replica.stop("relume stops")
        await self._until_none(Seconds(self._settings.grace + CLEAR_AWAY))
        for replica in self._reconciler.replicas():
            logger.error("replica %s still has processes", replica.name)
        await saving
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._publisher.wait_idle()
        except TimeoutError:
            logger.warning("the last states of the replicas could not be written")
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._prober.close()
        await self._training.close()

    async def _until_none(self, bound: Seconds) -> None:
        """Until no replica exists, or the bound."""
        until = Instant(self._clock.now() + bound)
        while (lives := self._reconciler.lives()) and self._clock.now() < until:
            late = asyncio.get_running_loop().create_task(self._clock.sleep_until(until))
            await asyncio.wait({*lives, late}, return_when=asyncio.FIRST_COMPLETED)
            late.cancel()

    async def wait_broken(self) -> None:
        """Never returns; raises when a part of the cluster fails in a way that it cannot mend (a bug, a closed log)."""
        await asyncio.shield(self._broken)

    async def _until_broken(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({task, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if self._broken.done():
            await self._broken

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a part of the cluster; if it fails, `wait_broken` raises."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a part of the local cluster failed", exc_info=error)
            if not self._broken.done():
                self._broken.set_exception(error)
                self._broken.exception()  # it is logged; who waits gets it all the same

    # What it follows.

    def _follow(self, topics: Sequence[str], start: Start, take: Callable[[Batch], None]) -> None:
        self._spawn(Follower(self._event_log, self._clock, topics, start, take).run())

    def recorded(self, records: Sequence[Record]) -> None:
        """Grants that stand in the log by now, told by who wrote them in this process. The log tells them later;
        then they are known. A start need not wait for that."""
        if self._caught_up.is_set():
            self._take_states(Batch(tuple(records)))
            self._told.update((one.envelope.key, one.position.offset) for one in records)

    def _is_new(self, record: Record) -> bool:
        """Not what was `recorded`, nor what stood before it: a grant must not give way to an older one."""
        key = record.envelope.key if record.position.topic == Topic.GRANTS else ""
        return record.position.offset > self._told.get(key, -1)

    def _take_states(self, batch: Batch) -> None:
        """Fold declarations and grants; look at what they change."""
        records = [record for record in batch.records if self._is_new(record)]
        changed = dict.fromkeys(name for record in records if (name := self._view.fold(record)) is not None)
        jobs = dict.fromkeys(job for record in records if (job := self._training.fold(record)) is not None)
        if batch.caught_up and not self._caught_up.is_set():
            self._view.begin_live()
            changed = dict.fromkeys(self._view.models)  # each gets its state published, also the empty ones
            self._training.begin_live()
            self._caught_up.set()
        if self._caught_up.is_set():
            for name in changed:
                self._reconciler.look(name)
            self._training.take(jobs)

    def _take_news(self, batch: Batch) -> None:
        for record in batch.records:
            if is_older(record.envelope, self._writer.epoch):
                self._say_again(record.envelope.data)
            else:
                self._hear(record.envelope)

    def _say_again(self, data: object) -> None:
        """An adapter that was replaced has told a state over ours."""
        if isinstance(data, ReplicasObserved) and data.model in self._view.models:
            self._publisher.say_again(ModelName(data.model))
        elif isinstance(data, TrainingObserved):
            self._training.say_again(data.job)

    def _hear(self, envelope: AnyEnvelope) -> None:
        data = envelope.data
        match data:
            case ReplicaDrained():
                self._reconciler.drained(data.model, data.replica, envelope.time)
            case ReplicaSuspected():
                suspect = self._reconciler.find(data.model, data.replica)
                if suspect is not None:
                    self._spawn(self._care.check_suspect(suspect, data.reason))

    async def _ring(self) -> None:
        async for name in self._alarms.rings():
            self._reconciler.look(name)

    async def _prune(self) -> None:
        """Keep the number of logs bounded: revisions come and go, and each leaves its logs."""
        while True:
            running = frozenset(str(replica.name) for replica in self._reconciler.replicas())
            await asyncio.to_thread(prune_logs, self._folder.logs, self._settings.log_files, running)
            await self._clock.sleep_until(Instant(self._clock.now() + PRUNE_EVERY))

    # What is seen of it.

    @property
    def cards(self) -> CardsObserved | None:
        """What this machine has for replicas; None before `start`."""
        return self._cards

    @property
    def logs(self) -> ReplicaLogFiles:
        """The replicas' logs."""
        return ReplicaLogFiles(self._folder.logs, self._clock, self._exists)

    @property
    def training_logs(self) -> ReplicaLogFiles:
        """The logs of training jobs, by member."""
        return self._training.logs

    def training_stats(self) -> TrainingStats:
        """Counts and levels of training; zeros before `start`."""
        return self._training.stats()

    def _exists(self, name: str) -> bool:
        return self._wired and any(replica.name == name for replica in self._reconciler.replicas())

    def stats(self) -> ClusterStats:
        """Counts and levels; zeros before `start`."""
        if not self._wired:
            return ClusterStats()
        replicas = self._reconciler.replicas()
        return ClusterStats(
            replicas=len(replicas),
            ready=sum(replica.state is ReplicaState.READY for replica in replicas),
            starting=sum(replica.state is ReplicaState.STARTING for replica in replicas),
            sleeping=sum(replica.state is ReplicaState.SLEEPING for replica in replicas),
            sleeping_bytes=self._berths.used, wakes=self._berths.wakes, failed_wakes=self._berths.failed_wakes,
            starts=self._reconciler.starts, failures=self._reconciler.failures,
            refused_grants=self._view.refused_grants, dropped_news=self._publisher.dropped_news,
            failed_appends=self._publisher.failed_appends, stale_killed=self._stale_killed, adopted=self._adopted,
        )  # fmt: skip
