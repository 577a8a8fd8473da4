"""One replica as a pod, from its grant to the end of its pod: its facts, its state, its task.

`live` is the whole life, as on one machine (`deploy.local.replica`): it ends by a *verdict*, and only when the pod is
gone, since only then its GPUs are free. Where the pod comes from, and how it goes, its *source* knows: a pod of our own
(`own_pod`), or one of an enrolled object's (`enrolled`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol

from coldstart.core.budget import Tier
from coldstart.core.cache.transfer import Transferred
from deploy.kubernetes.judging import PodReason, Trouble
from deploy.kubernetes.node_cache import Bringing, NotBrought
from deploy.kubernetes.pod_watch import PodTrouble, PodWatch
from deploy.kubernetes.shaping import ADAPTERS, WEIGHTS
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.backoff import Failure
from deploy.local.declared import Declared, Reason
from deploy.local.plan import ActualReplica
from deploy.local.starting import Prepared
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import Phase, PhaseSpan, ReplicaState, ReplicaStatus, StartWeights
from events.units import Instant, Seconds
from runtime.core.lifecycle import ReplicaEvent, after
from runtime.ports import Launch, LaunchRequest

logger = logging.getLogger(__name__)

TOLD_MESSAGE = 2000
"""Characters of a message that go into the state."""
LINGERS = Seconds(60.0)
"""Beyond the drain bound, for a pod that another hand ends to be gone; then it is ended by us. Chosen."""
SLOTS_BOUND = Seconds(10.0)
"""For the engine to tell its parallelism; one that does not tell is believed."""


class StartFailed(Exception):
    """The replica did not become ready."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a life ends. `reason` empty: it was ordered, so nothing failed."""

    reason: str
    message: str


class PodSource(Protocol):
    """Gives a replica its pod, and takes it away."""

    async def obtain(self) -> PodView:
        """The replica's pod, once there is one. Raises StartFailed."""

    def keep(self, pod: PodView) -> None:
        """This pod, which is there already, is the replica's."""

    def port(self, pod: PodView) -> int:
        """Where the pod serves. Raises StartFailed."""

    def drains(self, *, so: bool) -> None:
        """The replica takes nothing new from now on, or goes on after all."""

    async def displaced(self) -> Trouble:
        """Return when the pod is the next to be ended by whoever made it, though no one was to go who runs in it."""

    def ordinal(self) -> int | None:
        """Where the pod stands in the order in which whoever made it ends its pods; None: in none."""

    async def dispose(self) -> None:
        """Return when the replica's pod is gone, or never was."""


class PodReplica:
    """A replica. Used on the event loop only."""

    def __init__(
        self, tools: Tools, declared: Declared, grant: ReplicaGrant, changed: Callable[[PodReplica], None]
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
        self.source: PodSource
        """Set by who makes it, before `live`."""
        self.bringing: Bringing | None = None
        """Likewise, of one whose weights go through its node's cache."""
        self._weights: StartWeights | None = None
        self._leaving: Trouble | None = None
        self._emptied = asyncio.Event()
        self._prepared: Prepared | None = None
        self._watch: PodWatch | None = None
        self._tools = tools
        self._changed = changed
        self._ordered: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

    def take_over(self, status: ReplicaStatus, pod: PodView) -> None:
        """It was ready when an earlier relume saw it last, and its pod runs: it goes on as it was. Call it before
        `live`. Raises StartFailed or ValueError when that cannot be."""
        self._prepared = self.prepare(pod.ip, self.source.port(pod))
        self.source.keep(pod)
        self._watch = self._watched(pod)
        self.state, self.spans = status.state, status.phases
        self.created_at = Instant(status.created_at or self.created_at)
        self.ready_at = self._tools.clock.now() if status.ready_at is None else Instant(status.ready_at)
        drains = status.state is ReplicaState.DRAINING
        self.source.drains(so=drains)
        self.draining_since = self._tools.clock.now() if drains else None
        self._changed(self)

    # What the cluster orders.

    def drain(self) -> None:
        """It takes no new request."""
        self.draining_since = self._tools.clock.now()
        self.source.drains(so=True)
        self._move(ReplicaEvent.DRAIN_ORDERED)

    def take_back(self) -> None:
        """It is wanted after all; unless another hand ends its pod, which nobody takes back."""
        if self._leaving is not None:
            return
        self.draining_since = None
        self.drained = False
        self.source.drains(so=False)
        self._move(ReplicaEvent.DRAIN_TAKEN_BACK)

    def emptied(self) -> None:
        """It drains, and its last request is done."""
        self.drained = True
        self._emptied.set()

    def stop(self, why: str) -> None:
        """End it, in order."""
        self._order(Verdict("", why))

    def fail(self, reason: str, message: str) -> None:
        """End it: it does not answer, or its node is lost."""
        self._order(Verdict(reason, message))

    def _order(self, verdict: Verdict) -> None:
        if not self._ordered.done():  # the first verdict stands; a second one finds it ending already
            self._ordered.set_result(verdict)

    # Its life.

    async def live(self) -> None:
        """From the grant to the end of the pod."""
        loop, bringing = asyncio.get_running_loop(), self.bringing
        running = loop.create_task(self._run(), name=f"replica {self.name}")
        moving = loop.create_task(self._move_away())
        keeping = None if bringing is None else loop.create_task(bringing.keep())
        try:
            await asyncio.wait({running, moving, self._ordered}, return_when=asyncio.FIRST_COMPLETED)
            ended = moving if moving.done() else running
            self.verdict = self._ordered.result() if self._ordered.done() else _verdict_of(ended, self.name)
        finally:
            for task in (running, moving):
                task.cancel()
            await asyncio.gather(running, moving, return_exceptions=True)
        self._close_phase()
        self._order(self.verdict)
        self._move(ReplicaEvent.BROKE if self.verdict.reason else ReplicaEvent.STOP_BEGAN)
        await self.source.dispose()
        if bringing is not None and keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await bringing.let_go()
        self._move(ReplicaEvent.GONE)

    async def _run(self) -> Verdict:
        """Start, be ready, end by itself."""
        if self.ready_at is None:
            try:
                await self._start()
            except StartFailed as failed:
                return Verdict(failed.reason, failed.message)
            except PodTrouble as told:
                return Verdict(told.trouble.reason, told.trouble.message)
            self._close_phase()
            self.ready_at = self._tools.clock.now()
            self._move(ReplicaEvent.ANSWERED)
        assert self._watch is not None
        trouble = await self._watch.trouble()
        lost = trouble.reason == PodReason.NODE_LOST or not self._tools.node_ready(self._watch.pod.node)
        if self._watch.ends and not lost:
            await self._leave(trouble, self._watch.end())
        elif self.drained:
            return Verdict("", f"drained, and ended by itself ({trouble.message})")
        return Verdict(trouble.reason, trouble.message)

    async def _move_away(self) -> Verdict:
        """Its pod will be ended for another's: what runs in it finishes first. One that starts only starts anew."""
        trouble = await self.source.displaced()
        if self.state is ReplicaState.STARTING:
            return Verdict("", trouble.message)
        await self._leave(trouble)
        return Verdict("", f"drained: {trouble.message}")

    async def _leave(self, trouble: Trouble, *ends: Coroutine[Any, Any, None]) -> None:
        """Another hand ends the pod: it takes nothing new, and what runs in it may finish within the pod's grace."""
        logger.info("%s drains, since its pod ends: %s", self.name, trouble.message)
        self._leaving = trouble
        if self.state is ReplicaState.READY:
            self.drain()
        else:
            self._changed(self)
        loop = asyncio.get_running_loop()
        late = Instant(self._tools.clock.now() + self._tools.settings.drain_bound + LINGERS)
        bounds = (self._emptied.wait(), *ends, self._tools.clock.sleep_until(late))
        waits: list[asyncio.Task[object]] = [loop.create_task(one) for one in bounds]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _bring(self, bringing: Bringing) -> None:
        """Have the weights on the node. Raises StartFailed."""
        self._enter(Phase.FETCH)
        try:
            brought = await bringing.bring(self._fetching)
        except NotBrought as error:
            raise StartFailed(error.reason, str(error)) from error
        own, declared = brought.get(""), self.declared
        if own is not None:
            self._weights = StartWeights(
                bytes=own.bytes, tier=own.tier, done=own.bytes, at=self._tools.clock.now(), least_seconds=own.least
            )
            declared = replace(declared, weights=own.within(WEIGHTS))
        adapters = tuple(
            replace(one, path=brought[one.name].within(f"{ADAPTERS}/{one.name}")) if one.name in brought else one
            for one in declared.adapters
        )
        self.declared = replace(declared, adapters=adapters)

    def _fetching(self, seen: Transferred | None) -> None:
        """Its weights are on their way."""
        if seen is None or not seen.total or seen.done > seen.total:
            return
        told = StartWeights(bytes=seen.total, tier=Tier.REMOTE, done=seen.done, rate=seen.rate, at=seen.at)
        if self._weights is None or told.done != self._weights.done:
            self._weights = told
            self._changed(self)

    async def _start(self) -> None:
        """Phase by phase to the first token. Raises StartFailed, PodTrouble."""
        if self.bringing is not None:
            await self._bring(self.bringing)
        self._enter(Phase.PLACE)
        watch = self._watch = self._watched(await self.source.obtain())
        await watch.until(lambda pod: pod.node or None)
        self._enter(Phase.SPAWN)
        host = await watch.until(lambda pod: pod.ip or None)
        try:
            prepared = self._prepared = self.prepare(host, self.source.port(watch.pod))
        except ValueError as error:  # pydantic's is one too
            raise StartFailed(Reason.INVALID_SPEC, str(error)) from error
        within = self._tools.settings.start_within
        try:
            async with asyncio.timeout(within):
                await watch.unless_trouble(self._warm_up(prepared))
        except TimeoutError as error:
            raise StartFailed(Reason.START_HUNG, f"not ready within {within:g} s of having an address") from error

    async def _warm_up(self, prepared: Prepared) -> None:
        """From the address to the first token. Raises StartFailed."""
        prober, host, port = self._tools.prober, prepared.wanted.host, prepared.wanted.port
        await prober.wait_listening(host, port)
        self._enter(Phase.LOAD)
        health = await prober.wait_healthy(host, port, prepared.probe.health_path)
        self._enter(Phase.WARMUP)
        await self._first_token(prepared, health)

    def _watched(self, pod: PodView) -> PodWatch:
        return PodWatch(self._tools, pod, lambda: self.ready_at is not None)

    def prepare(self, host: str, port: int) -> Prepared:
        """How its engine is looked at. Raises ValueError for options that are wrong."""
        declared = self.declared
        engine = self._tools.engine_for(declared.engine)
        wanted = LaunchRequest(
            model=declared.model, replica=self.name, host=host, port=port, slots=declared.slots,
            weights=declared.weights, cpu=self.grant.resources.cpu, gpus=self.grant.placement.gpus,
            options=declared.options, adapters=tuple((one.name, one.path) for one in declared.adapters),
        )  # fmt: skip
        return Prepared(wanted, Launch(()), engine.probe(wanted), engine.abilities(wanted))

    async def _first_token(self, prepared: Prepared, health: object | None) -> None:
        """The one-token request and, beside it, the engine's count of slots. Raises StartFailed."""
        wanted, prober = prepared.wanted, self._tools.prober
        answers = {} if health is None else {prepared.probe.health_path: health}
        bound = self._tools.settings.warmup_bound
        try:
            async with asyncio.timeout(bound):
                cold, busy = await asyncio.gather(
                    prober.warm_up(wanted.host, wanted.port, prepared.probe), self._busy(prepared)
                )
        except TimeoutError:
            cold, busy = f"the one-token request was not answered within {bound:g} s", None
        if cold:
            raise StartFailed(Reason.WARMUP_FAILED, cold)
        if busy is not None:
            answers[prepared.abilities.busy_path] = busy
        mismatch = self._tools.engine_for(self.declared.engine).check_slots(answers, self.declared.slots)
        if mismatch:
            raise StartFailed(Reason.SLOTS_MISMATCH, mismatch)

    async def _busy(self, prepared: Prepared) -> object | None:
        path, wanted = prepared.abilities.busy_path, prepared.wanted
        return await self._tools.prober.read(wanted.host, wanted.port, path, SLOTS_BOUND) if path else None

    def _enter(self, phase: Phase) -> None:
        now = self._tools.clock.now()
        self._close_phase(now)
        self.phase = phase
        self.spans = (*self.spans, PhaseSpan(phase=phase, started_at=now))
        self._changed(self)

    def _close_phase(self, at: Instant | None = None) -> None:
        """The present phase, if any, ends."""
        if self.spans and self.spans[-1].ended_at is None:
            last, now = self.spans[-1], self._tools.clock.now() if at is None else at
            self.spans = (*self.spans[:-1], PhaseSpan(phase=last.phase, started_at=last.started_at, ended_at=now))
        self.phase = None

    def _move(self, event: ReplicaEvent) -> None:
        assert self.state is not None
        self.state = after(self.state, event)
        self._changed(self)

    # What is seen of it.

    @property
    def pod(self) -> PodView | None:
        """What was seen last of its pod."""
        return None if self._watch is None else self._watch.pod

    @property
    def prepared_start(self) -> Prepared | None:
        """How its engine is addressed and what it can do; None before its pod had an address."""
        return self._prepared

    def failure(self) -> Failure:
        """What went wrong; for a life that ended by a failure."""
        assert self.verdict is not None
        tail = () if self._watch is None else self._watch.tail
        return Failure(self.created_at, self.verdict.reason, self.verdict.message[:TOLD_MESSAGE], tail)

    def actual(self) -> ActualReplica:
        """As the plan sees it."""
        assert self.state is not None
        return ActualReplica(
            replica=self.name, uid=self.declared.uid, state=self.state, gpus=self.grant.placement.gpus,
            draining_since=self.draining_since, drained=self.drained,
        )  # fmt: skip

    def status(self) -> ReplicaStatus:
        """As all others see it."""
        assert self.state is not None
        prepared, why = self._prepared, self.verdict or self._leaving
        listens = self.phase in (Phase.LOAD, Phase.WARMUP) or self.ready_at is not None
        abilities = prepared.abilities if prepared else None
        return ReplicaStatus(
            replica=self.name, uid=self.declared.uid, revision=self.grant.revision, state=self.state, phase=self.phase,
            phases=self.spans, address=_address(prepared) if prepared and listens else "", slots=self.declared.slots,
            node=self.grant.placement.node, gpus=self.grant.placement.gpus, resources=self.grant.resources,
            created_at=self.created_at, ready_at=self.ready_at,
            cancels=str(abilities.cancels) if abilities else "streams",
            busy_path=abilities.busy_path if abilities else "",
            reason=why.reason if why else "", message=why.message[:TOLD_MESSAGE] if why else "",
            weights=self._weights, ordinal=self.source.ordinal(),
        )  # fmt: skip

    async def check_node(self, check: Coroutine[Any, Any, bool]) -> None:
        """Its node says nothing any more: it is lost too, unless it answers."""
        if not await check:
            self.fail(PodReason.NODE_LOST, f"node {self.pod.node if self.pod else ''} is not ready, and it is silent")


def _address(prepared: Prepared) -> str:
    host = prepared.wanted.host
    return f"[{host}]:{prepared.wanted.port}" if ":" in host else f"{host}:{prepared.wanted.port}"


def _verdict_of(running: asyncio.Task[Verdict], name: str) -> Verdict:
    """The verdict of a life that ended by itself; a bug of ours is a failed start with a traceback in our log."""
    error = running.exception()
    if error is None:
        return running.result()
    logger.error("the start of replica %s broke", name, exc_info=error)
    return Verdict(str(Reason.CANNOT_START), f"{type(error).__name__}: {error}")
