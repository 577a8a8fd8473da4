"""Training on this machine as a part of the local cluster: all that concerns jobs, behind a few calls.

`find` before anything of an earlier relume is ended; `wire` once the cards are known; `fold` and `take` follow the log;
`adopt` when it has been read; `stop` at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deploy.local.addresses import Ports
from deploy.local.alarms import Alarms
from deploy.local.cores import Cores
from deploy.local.folder import DataFolder
from deploy.local.gpu_limits import GpuLimits
from deploy.local.logs import prune_logs
from deploy.local.publisher import Publisher
from deploy.local.replica_logs import ReplicaLogFiles
from deploy.local.settings import LocalSettings
from deploy.local.training.adopting import Found, find_runs
from deploy.local.training.checking import Checker
from deploy.local.training.closing import alive, close_runs
from deploy.local.training.emptying import Left, until_empty
from deploy.local.training.ending import End, signals_of
from deploy.local.training.folders import logs_of, mark_of, purge
from deploy.local.training.jobs import Jobs, Spawn
from deploy.local.training.lives import Hands
from deploy.local.training.notifying import HttpPoster
from deploy.local.training.run import Run
from deploy.local.training.starting import Counts, Shape, TrainingTools
from deploy.local.training.story import story_of
from deploy.local.training.view import JobView, TrainingView
from deploy.local.usage import measure_trees
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, Record
from events.types.training import RunState, Stop, TrainingObserved
from events.units import Instant, Seconds
from events.writer import EventWriter
from preemption.core.training import TrainingPolicy

logger = logging.getLogger(__name__)

PRUNE_EVERY: Final = Seconds(600.0)
LAST_WORDS: Final = Seconds(3.0)
"""At the end: for the last states to be written."""
CLEAR_AWAY: Final = Seconds(15.0)
"""At the end: for processes that were killed to be gone, beyond the grace."""


@dataclass(frozen=True, slots=True)
class TrainingStats:
    """Counts since the start, and levels now. `unproven`: runs that have ended and whose cards were not seen empty."""

    running: int = 0
    starting: int = 0
    unproven: int = 0
    runs: int = 0
    failures: int = 0
    notices: int = 0
    checkpoints: int = 0
    bad_checkpoints: int = 0
    unreadable_reports: int = 0
    refused_grants: int = 0
    dropped_news: int = 0
    failed_appends: int = 0
    adopted: int = 0


class LocalTraining:
    """See the module. Used on one event loop. `spawn` runs parts of it; one that fails breaks the cluster."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock, folder: DataFolder, settings: LocalSettings
    ) -> None:
        self._event_log = log
        self._clock = clock
        self._folder = folder
        self._settings = settings
        self._view = TrainingView(settings.node)
        self._alarms: Alarms[str] = Alarms(clock)
        self._publisher: Publisher[str] = Publisher(log, writer, clock, self._state)
        self._found: dict[str, Found] = {}
        self._adopted = 0
        self._wired = False
        self._jobs: Jobs[Run]
        self._tools: TrainingTools
        self._poster: HttpPoster
        self._checker: Checker

    async def find(self) -> frozenset[str]:
        """What outlived an earlier relume: the names of its processes, which must go on. Raises LogUnavailable."""
        self._found = await find_runs(self._event_log, self._folder, self._settings.node)
        return frozenset(name for found in self._found.values() for name in found.marks)

    def wire(
        self, cores: Cores, ports: Ports, real_cards: frozenset[str], spawn: Spawn, limits: GpuLimits | None = None
    ) -> None:
        """Make what is needed to run jobs, and begin to tell of them."""
        self._poster, self._checker = HttpPoster(), Checker()
        tools = TrainingTools(
            clock=self._clock, settings=self._settings, folder=self._folder, ports=ports, cores=cores,
            real_cards=real_cards, limits=limits, checker=self._checker, poster=self._poster,
            record=self._publisher.record, news=self._publisher.news, counts=Counts(),
        )  # fmt: skip
        self._tools = tools
        hands = Hands(
            self._clock, lambda shape, story, changed: Run(tools, shape, story, changed), self._prove, self._purge,
            lambda shape: str(shape.start_folder(self._folder)),
        )  # fmt: skip
        self._jobs = Jobs(hands, self._view, self._alarms, self._publisher, spawn)
        self._wired = True
        for work in (self._publisher.run(), self._ring(), self._watch(), self._prune()):
            spawn(work)

    async def _purge(self, job: str, kept: str) -> None:
        """A person wants what deleted jobs of this name have left to go."""
        gone = await asyncio.to_thread(purge, self._folder, job, kept)
        logger.info("removed what deleted jobs called %s had left: %s", job, ", ".join(gone) or "nothing")

    # What it follows.

    def fold(self, record: Record) -> str | None:
        """Take a record in; the job about which something changed, if any."""
        return self._view.fold(record)

    def begin_live(self) -> None:
        """The log has been read: go on with what outlived an earlier relume, and follow grants from now on."""
        self._view.begin_live()
        for job, found in self._found.items():
            self._adopt(job, found)
        self._found = {}
        self.take(self._view.jobs.keys() | self._jobs.jobs.keys())

    def take(self, jobs: Iterable[str]) -> None:
        """Look at these."""
        for job in list(jobs):
            self._jobs.look(job)

    def say_again(self, job: str) -> None:
        """An adapter that was replaced has told a state over ours; of what we have none, its own stands."""
        if job in self._jobs.jobs:
            self._publisher.say_again(job)

    def _adopt(self, job: str, found: Found) -> None:
        observed, view = found.observed, self._view.jobs.get(job, JobView())
        self._jobs.restore(observed)
        if observed.state is RunState.ENDED:
            return
        policy = view.revisions.get(observed.revision) if view.uid == observed.uid else None
        if not isinstance(policy, TrainingPolicy):  # not known, or not to be read, any more: by the defaults then
            policy = TrainingPolicy(job=job, command=("unknown",))
        shape = Shape(policy, observed.uid, observed.revision, observed.run, tuple(one.grant for one in found.members))
        run = Run(self._tools, shape, story_of(observed), self._changed)
        pressed = self._pressed(job, observed)
        for member in found.members:
            member.sent |= signals_of(pressed)
            member.end = None if member.end is None else End(member.end.exit, frozenset(member.sent))
        run.take_over(found.members, found.notices)
        run.epoch = view.epoch
        run.told_to_end = pressed is not Stop.NOT
        grant = self._view.granted(job)
        if grant is not None and grant.notice is not None and run.notice == grant.notice.id:
            run.give(grant.notice)
        self._jobs.go_on(run)
        self._adopted += 1
        logger.info("goes on with run %d of %s: %s", observed.run, job, run.gang.pids())

    def _pressed(self, job: str, observed: TrainingObserved) -> Stop:
        """What the earlier relume may have told it."""
        grant = self._view.granted(job)
        if grant is None or (grant.uid, grant.run) != (observed.uid, observed.run) or not grant.members:
            return Stop.TERMINATE
        return grant.stop

    async def _prove(self, observed: TrainingObserved) -> None:
        """Its run had ended when an earlier relume did, and nobody saw its cards empty."""
        since = Instant(observed.started_at or 0.0)
        cards = {card for one in observed.members for card in one.gpus}
        names = frozenset(mark_of(observed.uid, observed.run, one.member) for one in observed.members)
        real = frozenset(cards & self._tools.real_cards)
        await until_empty(Left(self._tools.folder.mark, names, real, since), self._clock)

    def _state(self, job: str) -> tuple[TrainingObserved, AnyEnvelope | None] | None:
        return self._jobs.state(job)

    def _changed(self, run: Run) -> None:
        self._publisher.mark(run.shape.policy.job)

    # What it does besides.

    async def _ring(self) -> None:
        async for job in self._alarms.rings():
            self._jobs.look(job)

    async def _watch(self) -> None:
        """Look at the memory of members that have a limit, until cancelled."""
        while True:
            limited = {
                member.process.shim_pid: (run, member)
                for run in self._jobs.runs()
                for member in run.gang.members
                if member.process is not None and member.end is None and member.grant.resources.memory_bytes
            }
            uses = await asyncio.to_thread(measure_trees, list(limited)) if limited else {}
            for shim, use in uses.items():
                run, member = limited[shim]
                run.watch(member, use)
            await self._clock.sleep_until(Instant(self._clock.now() + self._settings.watch_every))

    async def _prune(self) -> None:
        """Keep the number of logs bounded."""
        while True:
            running = frozenset(one.member for run in self._jobs.runs() for one in run.shape.members)
            await asyncio.to_thread(prune_logs, logs_of(self._folder), self._settings.log_files, running)
            await self._clock.sleep_until(Instant(self._clock.now() + PRUNE_EVERY))

    async def stop(self, bound: Seconds) -> None:
        """Let all runs save, within `bound`, and end them. The log must be open: the last states are written to it."""
        await self._end_found()
        if not self._wired:
            return
        self._jobs.close()
        lives, runs = self._jobs.lives, self._jobs.runs
        await close_runs(runs, lives, self._clock, (bound, self._settings.grace))
        if lives():
            await asyncio.wait(lives(), timeout=self._settings.grace + CLEAR_AWAY)
        for run in alive(runs()):
            logger.error("run %d of %s still has processes", run.shape.run, run.shape.policy.job)
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._publisher.wait_idle()
        except TimeoutError:
            logger.warning("the last states of training jobs could not be written")

    async def close(self) -> None:
        """Give back what is left, once nothing of it runs."""
        if self._wired:
            self._checker.close()
            await self._poster.close()

    async def _end_found(self) -> None:
        """A start that did not come so far as to go on with them."""
        processes = [one.process for found in self._found.values() for one in found.members if one.process is not None]
        for process in processes:
            process.terminate()
        await asyncio.gather(*(process.wait_gone() for process in processes))
        self._found = {}

    # What is seen of it.

    @property
    def logs(self) -> ReplicaLogFiles:
        """The members' logs."""
        return ReplicaLogFiles(logs_of(self._folder), self._clock, self._exists)

    def _exists(self, member: str) -> bool:
        return self._wired and any(
            one.member == member for run in alive(self._jobs.runs()) for one in run.shape.members
        )  # fmt: skip

    def stats(self) -> TrainingStats:
        """Counts and levels; zeros before `wire`."""
        if not self._wired:
            return TrainingStats()
        states = [run.state for run in self._jobs.runs()]
        heard = self._tools.counts
        return TrainingStats(
            running=states.count(RunState.RUNNING), starting=states.count(RunState.STARTING),
            unproven=states.count(RunState.ENDED), runs=self._jobs.started, failures=self._jobs.failed,
            notices=self._jobs.notices, checkpoints=heard.checkpoints, bad_checkpoints=heard.bad_checkpoints,
            unreadable_reports=heard.unreadable, refused_grants=self._view.refused_grants,
            dropped_news=self._publisher.dropped_news, failed_appends=self._publisher.failed_appends,
            adopted=self._adopted,
        )  # fmt: skip
