"""One replica from its start to its last process: its facts, its state, its task.

`live` is the whole life. It ends by a *verdict*: the cluster ordered it (`stop`, `fail`), or the engine ended by
itself. Whatever the verdict, the life is over only when no process is left, since only then cards, cores and memory are
free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from coldstart.core.budget import Tier
from coldstart.core.cache.transfer import Transferred
from coldstart.core.phases import current
from deploy.local.backoff import LONGEST_DELAY, Failure
from deploy.local.declared import Declared, Reason
from deploy.local.keeping import Had
from deploy.local.logs import log_path, log_size, tail
from deploy.local.plan import ActualReplica
from deploy.local.process import ReplicaProcess
from deploy.local.progress import Progress, Sample, advance
from deploy.local.resting import Rest
from deploy.local.starting import TAIL_LINES, Prepared, Start, StartFailed, Tools
from deploy.local.usage import TreeUse
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import Phase, PhaseSpan, ReplicaState, ReplicaStatus, StartWeights
from events.types.shared import Resources
from events.units import Instant, Seconds
from runtime.core.golden import Said
from runtime.core.lifecycle import ReplicaEvent, after

logger = logging.getLogger(__name__)

TOLD_LINE = 500
TOLD_MESSAGE = 2000
ROOM_AGAIN = Seconds(15.0)
"""Until a start that found no room in the cache is tried again: a use may end at any moment, and asking costs a look at
the source."""
"""Characters of a log line, and of a message, that go into the state: it is written with each change of the model."""
ALL = frozenset(Phase)
ABANDON = Seconds(5.0)
"""After the grace: how long a shim may take to see to its SIGKILL before it is taken to be stuck."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a life ends. `reason` None: it was ordered, so nothing failed. `kill`: it is not asked to end first."""

    reason: Reason | None
    message: str
    kill: bool = False


class Replica:
    """A replica. Used on the event loop only."""

    def __init__(
        self, tools: Tools, declared: Declared, grant: ReplicaGrant, changed: Callable[[Replica], None]
    ) -> None:
        self.name = ReplicaName(grant.replica)
        self.declared = declared
        self.grant = grant
        self.state: ReplicaState | None = ReplicaState.STARTING
        self.phase: Phase | None = None
        self.spans: tuple[PhaseSpan, ...] = ()
        self.created_at = tools.clock.now()
        self.ready_at: Instant | None = None
        self.draining_since: Instant | None = None
        self.drained = False
        self.verdict: Verdict | None = None
        self.process: ReplicaProcess | None = None
        self._prepared: Prepared | None = None
        self._listens = False
        self._tools = tools
        self._changed = changed
        self._spawning: asyncio.Future[ReplicaProcess] | None = None
        self._ordered: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._log = log_path(tools.folder.logs, grant.replica)
        self._progress: Progress | None = None
        self._had: Had | None = None
        self._still_read = 0
        """How many of weights and adapters are still read ahead of the engine."""
        self._adapters: list[Had] = []
        self._weights: StartWeights | None = None
        self._fetched = 0
        self.rest = Rest(tools, self)
        tools.cores.take(self.name, grant.resources.cpu if tools.settings.pin_cores else 0.0)

    def take_over(self, status: ReplicaStatus, process: ReplicaProcess, prepared: Prepared) -> None:
        """It is another relume's, and serves: it goes on as it was. Call it before `live`."""
        self.state, self.spans = status.state, status.phases
        self.created_at, self.ready_at = Instant(status.created_at or self.created_at), _instant(status.ready_at)
        self.draining_since = self._tools.clock.now() if status.state is ReplicaState.DRAINING else None
        self.process, self._prepared = process, prepared
        self._spawning = asyncio.get_running_loop().create_future()
        self._spawning.set_result(process)
        self._changed(self)

    # What the cluster orders.

    def drain(self) -> None:
        """It takes no new request."""
        self.draining_since = self._tools.clock.now()
        self._move(ReplicaEvent.DRAIN_ORDERED)

    def take_back(self) -> None:
        """It is wanted after all."""
        self.draining_since = None
        self.drained = False
        self._move(ReplicaEvent.DRAIN_TAKEN_BACK)

    def doze(self, level: int) -> None:
        """Its last request is done: it sleeps, or ends where it cannot."""
        self.rest.doze(level)

    def wake(self) -> None:
        """It sleeps and is wanted again: a start of its own begins."""
        now, weights = self._tools.clock.now(), self.rest.weights
        self.created_at, self.spans, self._progress = now, (), None
        self._weights = StartWeights(bytes=weights, tier=Tier.SLEEP, done=weights, at=now, least_seconds=0.0)
        self._move(ReplicaEvent.WOKEN)
        self.entered(Phase.WAKE)
        self.rest.wake()

    def stop(self, why: str) -> None:
        """End it, in order."""
        self._order(Verdict(None, why))

    def fail(self, reason: Reason, message: str) -> None:
        """Kill it: it broke its limits, or does not answer."""
        self._order(Verdict(reason, message))

    def _order(self, verdict: Verdict) -> None:
        if not self._ordered.done():  # the first verdict stands; a second one finds it ending already
            self._ordered.set_result(verdict)

    # Its life.

    async def live(self) -> None:
        """From the start to the last process."""
        running = asyncio.get_running_loop().create_task(self._run(), name=f"replica {self.name}")
        try:
            await asyncio.wait({running, self._ordered}, return_when=asyncio.FIRST_COMPLETED)
            self.verdict = self._ordered.result() if self._ordered.done() else _verdict_of(running, self.name)
        finally:
            running.cancel()
            await asyncio.gather(running, *self.rest.end(), return_exceptions=True)
        self._close_phase()
        self._order(self.verdict)
        self._move(ReplicaEvent.STOP_BEGAN if self.verdict.reason is None else ReplicaEvent.BROKE)
        await self._clear_away(in_order=self.verdict.reason is None and not self.verdict.kill)
        for had in (*([] if self._had is None else [self._had]), *self._adapters):
            had.end()
        self._tools.cores.give_back(self.name)
        self._move(ReplicaEvent.GONE)

    async def _run(self) -> Verdict:
        """Start, be ready, end by itself."""
        if self.process is None:
            try:
                self.process = await Start(self._tools, self.declared, self.grant, self).run()
            except StartFailed as failed:
                return Verdict(failed.reason, failed.message)
            self._close_phase()
            for had in (*([] if self._had is None else [self._had]), *self._adapters):
                had.loaded.set()
            self.ready_at = self._tools.clock.now()
            self._move(ReplicaEvent.ANSWERED)
        exit_ = await self.process.wait_exit()
        if self.state is ReplicaState.SLEEPING:
            return Verdict(None, f"ended by itself while it slept ({exit_})")
        if self.drained:
            return Verdict(None, f"drained, and ended by itself ({exit_})")
        hint = "; perhaps by the system, for lack of memory" if exit_.signal == 9 else ""
        return Verdict(Reason.CRASHED, f"the engine ended by itself: {exit_}{hint}")

    async def _clear_away(self, *, in_order: bool) -> None:
        """Return when no process of it is left. In order: it is asked to end first."""
        if self._spawning is None:
            return
        try:
            process = await self._spawning
        except Exception:  # noqa: BLE001 - there never was one; `_run` tells why, and no other model may suffer from it
            return
        process.terminate() if in_order else process.kill()
        settings, clock = self._tools.settings, self._tools.clock
        for bound, next_step in ((settings.grace + ABANDON, process.kill), (ABANDON, process.abandon_shim)):
            gone = asyncio.get_running_loop().create_task(process.wait_gone())
            late = asyncio.get_running_loop().create_task(clock.sleep_until(Instant(clock.now() + bound)))
            await asyncio.wait({gone, late}, return_when=asyncio.FIRST_COMPLETED)
            late.cancel()
            if gone.done():
                return
            gone.cancel()
            next_step()
        logger.error("replica %s (pid %d) does not end; its cards and memory stay taken", self.name, process.pid)
        await process.wait_gone()

    # What its sleep tells (Resting).

    def fell_asleep(self) -> None:
        """It serves nothing, and holds host memory only."""
        self.ready_at, self.draining_since, self.drained, self._listens = None, None, False, False
        self._move(ReplicaEvent.FELL_ASLEEP)

    def woke(self) -> None:
        """It is ready again."""
        self._close_phase()
        self.ready_at = self._tools.clock.now()
        self._move(ReplicaEvent.ANSWERED)

    def kill(self, why: str) -> None:
        """End it at once; nothing has failed."""
        self._order(Verdict(None, why, kill=True))

    @property
    def weights_path(self) -> str:
        """Where what its engine loaded lies, or empty."""
        return self.declared.weights if self._had is None else str(self._had.path)

    # What its start tells (Listener).

    def entered(self, phase: Phase) -> None:
        """A phase of the start began."""
        now = self._tools.clock.now()
        self.spans = _ended(self.spans, now, ALL - {Phase.READ})  # which goes on beside all others
        self.phase = phase
        self.spans = (*self.spans, PhaseSpan(phase=phase, started_at=now))
        self._listens = phase in (Phase.LOAD, Phase.WARMUP)
        self._changed(self)

    def beside(self, phase: Phase) -> None:
        """A phase of the start began beside another."""
        self.spans = (*self.spans, PhaseSpan(phase=phase, started_at=self._tools.clock.now()))
        self._changed(self)

    def left(self, phase: Phase) -> None:
        """That phase ended, and another goes on."""
        self.spans = _ended(self.spans, self._tools.clock.now(), {phase})
        goes_on = current([span for span in self.spans if span.phase is not Phase.READ])
        self.phase = None if goes_on is None else goes_on.phase
        self._changed(self)

    def prepared(self, prepared: Prepared) -> None:
        """Its port and the engine's abilities are known."""
        self._prepared = prepared

    def fetching(self, seen: Transferred | None) -> None:
        """Its weights are on their way."""
        if seen is None:
            self._fetched -= 1  # to wait for its turn is no standstill
        elif seen.total and seen.done <= seen.total:
            self._fetched = seen.done
            told = StartWeights(bytes=seen.total, tier=Tier.REMOTE, done=seen.done, rate=seen.rate, at=seen.at)
            if self._weights is None or told.done != self._weights.done:
                self._weights = told
                self._changed(self)

    def has(self, had: Had) -> None:
        """Its weights are here."""
        self._had = had
        self._weights = StartWeights(
            bytes=had.bytes, tier=had.tier, done=had.bytes, at=self._tools.clock.now(), least_seconds=had.least
        )
        self._reads(had)

    def has_adapter(self, had: Had) -> None:
        """An adapter of it is here."""
        self._adapters.append(had)
        self._reads(had)

    def _reads(self, had: Had) -> None:
        """What of it is on the disk only is read ahead of the engine; of a small file that is over already."""
        if had.read is None or had.read.done():
            return
        if not self._still_read:
            self.beside(Phase.READ)
        self._still_read += 1
        had.read.add_done_callback(lambda _: self._has_read())

    def _has_read(self) -> None:
        self._still_read -= 1
        if not self._still_read and any(span.phase is Phase.READ and span.ended_at is None for span in self.spans):
            self.left(Phase.READ)

    def answered(self, golden: Said | None) -> None:
        """Its first token."""
        self.rest.golden = golden

    def spawning(self, process: asyncio.Task[ReplicaProcess]) -> None:
        """Its engine is about to run."""
        self._spawning = process
        process.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[ReplicaProcess]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.process = task.result()
            self._changed(self)

    def _close_phase(self, at: Instant | None = None) -> None:
        """What goes on of the start ends."""
        self.spans = _ended(self.spans, self._tools.clock.now() if at is None else at, ALL)
        self.phase = None

    def _move(self, event: ReplicaEvent) -> None:
        assert self.state is not None
        self.state = after(self.state, event)
        self._changed(self)

    # What is seen of it.

    @property
    def prepared_start(self) -> Prepared | None:
        """How its engine is addressed and what it can do; None before its port was chosen."""
        return self._prepared

    def watch(self, use: TreeUse | None) -> None:
        """Judge what its processes use: its memory limit and, while it starts, whether it gets on. Of what sleeps the
        memory for sleepers is the limit."""
        limit = 0 if self.rest.unbounded else self.grant.resources.memory_bytes
        if use is not None and limit and use.memory_bytes > limit:
            self.fail(
                Reason.OOM_KILLED, f"its processes used {use.memory_bytes} bytes; resources.memory allows {limit}"
            )
        if self.state is not ReplicaState.STARTING or self.phase in (None, Phase.PLACE):
            return
        assert self.phase is not None
        now = self._tools.clock.now()
        cpu, memory = (use.cpu_seconds, use.memory_bytes) if use else (None, None)
        seen = Sample(self.phase, log_size(self._log), cpu, memory, self._fetched)
        self._progress = Progress(now, seen) if self._progress is None else advance(self._progress, seen, now)
        wrong = self._tools.settings.start_deadline.verdict(self._began(), self._progress, now)
        if wrong:
            self.fail(Reason.START_HUNG, wrong)

    def _began(self) -> Instant:
        """When what is bounded in all began: the fetch of weights is not, as long as bytes come."""
        fetched = [span.ended_at for span in self.spans if span.phase is Phase.FETCH and span.ended_at is not None]
        return Instant(fetched[-1]) if fetched else self.created_at

    async def failure(self) -> Failure:
        """What went wrong, with the engine's last lines; for a life that ended by a failure."""
        assert self.verdict is not None
        assert self.verdict.reason is not None
        lines = await asyncio.to_thread(tail, self._log, TAIL_LINES)
        told = tuple(line[:TOLD_LINE] for line in lines)
        within = ROOM_AGAIN if self.verdict.reason is Reason.WEIGHTS_NO_SPACE else LONGEST_DELAY
        return Failure(self.created_at, str(self.verdict.reason), self.verdict.message[:TOLD_MESSAGE], told, within)

    def actual(self) -> ActualReplica:
        """As the plan sees it."""
        assert self.state is not None
        return ActualReplica(
            replica=self.name, uid=self.declared.uid, state=self.state, gpus=self.grant.placement.gpus,
            draining_since=self.draining_since, drained=self.drained, revision=self.grant.revision,
            sleeps=self.rest.levels, dozing=self.rest.dozing, sleeping_since=self.rest.since,
        )  # fmt: skip

    def status(self) -> ReplicaStatus:
        """As all others see it."""
        assert self.state is not None
        prepared = self._prepared
        address = (
            f"{prepared.wanted.host}:{prepared.wanted.port}" if prepared and (self._listens or self.ready_at) else ""
        )
        abilities = prepared.abilities if prepared else None
        verdict = self.verdict
        asleep = self.rest.since is not None  # also while it ends without having been woken
        return ReplicaStatus(
            replica=self.name, uid=self.declared.uid, revision=self.grant.revision, state=self.state, phase=self.phase,
            phases=self.spans, address=address, slots=self.declared.slots, node=self.grant.placement.node,
            gpus=() if asleep else self.grant.placement.gpus,
            resources=Resources(memory_bytes=self.rest.kept) if asleep else self.grant.resources,
            created_at=self.created_at, ready_at=self.ready_at, pid=self.process.pid if self.process else None,
            cancels=str(abilities.cancels) if abilities else "streams",
            busy_path=abilities.busy_path if abilities else "",
            reason=str(verdict.reason or "") if verdict else "", message=verdict.message if verdict else "",
            weights=self._weights, sleep_level=self.rest.way.level if asleep and self.rest.way else 0,
        )  # fmt: skip


def _ended(spans: tuple[PhaseSpan, ...], at: Instant, phases: AbstractSet[Phase]) -> tuple[PhaseSpan, ...]:
    """With an end of those that go on, of these phases."""
    return tuple(
        replace(span, ended_at=at) if span.ended_at is None and span.phase in phases else span for span in spans
    )


def _instant(at: float | None) -> Instant | None:
    return None if at is None else Instant(at)


def _verdict_of(running: asyncio.Task[Verdict], name: str) -> Verdict:
    """The verdict of a life that ended by itself; a bug of ours is a failed start with a traceback in our log."""
    error = running.exception()
    if error is None:
        return running.result()
    logger.error("the start of replica %s broke", name, exc_info=error)
    return Verdict(Reason.CANNOT_START, f"{type(error).__name__}: {error}")
