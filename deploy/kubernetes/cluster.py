"""The cluster adapter of Kubernetes: follows grants and makes the pods of a namespace match them.

Level-based: an event only says about which model something changed; what is done follows from the whole view of that
model. Everything that decides runs on the event loop without waiting, so a view is never half old. Each replica has a
task of its own, so one that hangs hinders nobody. What decides about replicas is the same as on one machine
(`deploy.local`): the plan, the fold of grants with its fences, back-off, probes, publishing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deploy.api.declaring import Declarations
from deploy.kubernetes.agents import Agents
from deploy.kubernetes.annotated import AnnotatedObjects
from deploy.kubernetes.api import KubeApi, connect
from deploy.kubernetes.declaring import ModelObjects
from deploy.kubernetes.device_states import DeviceStates
from deploy.kubernetes.enrolling import Enrolments
from deploy.kubernetes.gpu_pools import PoolObjects
from deploy.kubernetes.gpu_states import GpuStates
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.leftovers import Leftovers
from deploy.kubernetes.node_cache import NodeCache
from deploy.kubernetes.node_states import NodeStates
from deploy.kubernetes.objects import ObjectWriter
from deploy.kubernetes.pod_logs import PodLogs
from deploy.kubernetes.pod_sources import PodSources
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.quota_states import QuotaStates
from deploy.kubernetes.reconciler import Hands, Reconciler
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import MODELS, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.shapes import Shapes
from deploy.kubernetes.stand_ins import StandInPods
from deploy.kubernetes.stories import Stories
from deploy.kubernetes.telling import Teller
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.training.logs import MemberLogs
from deploy.kubernetes.training.training import KubernetesTraining, KubernetesTrainingStats
from deploy.kubernetes.views import PodView
from deploy.kubernetes.words import Words
from deploy.local.alarms import Alarms
from deploy.local.looking import Looking
from deploy.local.prober import HttpProber
from deploy.local.publisher import Publisher
from deploy.local.settings import LocalSettings
from deploy.local.view import View
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.fence import is_older
from events.following import Follower
from events.log import Batch, EventLog, Query, Start
from events.names import ModelName, Topic
from events.types.gpus import GpusObserved
from events.types.limits import LimitsObserved
from events.types.models import ModelDeclared
from events.types.phases import ReplicaDrained, ReplicaSuspected
from events.types.pools import PoolDeclared
from events.types.replicas import CardsObserved, ReplicasObserved, ReplicaState
from events.types.training import TrainingObserved
from events.units import Seconds
from events.writer import EventWriter
from runtime.adapters.registry import engine_for

logger = logging.getLogger(__name__)

LAST_WORDS: Final = Seconds(3.0)
"""At the end: for the last states to be written."""


@dataclass(frozen=True, slots=True)
class KubernetesStats:
    """Counts since the start, and levels now."""

    replicas: int = 0
    ready: int = 0
    starting: int = 0
    starts: int = 0
    failures: int = 0
    adopted: int = 0
    refused_grants: int = 0
    refused_objects: int = 0
    dropped_news: int = 0
    failed_appends: int = 0
    api_calls: int = 0
    broken_watches: int = 0
    forgotten_pasts: int = 0
    status_writes: int = 0
    stand_ins: int = 0
    stand_ins_made: int = 0


class KubernetesCluster:
    """The adapter of one namespace. `stand_by`, then `start`, in the end `stop`. Used on one event loop."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock, declaring: Declarations, settings: KubernetesSettings
    ) -> None:
        self._event_log = log
        self._writer = writer
        self._clock = clock
        self._declaring = declaring
        self._settings = settings
        self._view = View(None, settings.drain_bound)
        self._shapes = Shapes()
        self._stories = Stories(clock)
        self._training = KubernetesTraining(log, writer, clock, declaring, settings)
        self._alarms: Alarms[ModelName] = Alarms(clock)
        self._publisher: Publisher[ModelName] = Publisher(log, writer, clock, self._state)
        self._tasks: set[asyncio.Task[None]] = set()
        self._caught_up = asyncio.Event()
        self._wired = False
        self._api: KubeApi | None = None
        self._lease: Lease
        self._pods: PodStore
        self._nodes: NodeStates
        self._devices: DeviceStates
        self._quotas: QuotaStates
        self._models: Reflector
        self._objects: ModelObjects
        self._pool_objects: PoolObjects
        self._teller: Teller
        self._enrolments: Enrolments
        self._stand_ins: StandInPods
        self._annotated: AnnotatedObjects
        self._leftovers: Leftovers
        self._reconciler: Reconciler
        self._looking: Looking
        self.logs: PodLogs | None = None
        self.training_logs: PodLogs | None = None
        self._prober: HttpProber
        self._agents: Agents
        self._cache: NodeCache
        self._gpus: GpuStates
        self._broken: asyncio.Future[None]

    async def stand_by(self) -> None:
        """Return once the Lease of the namespace is ours. Raises KubernetesMissing."""
        self._broken = asyncio.get_running_loop().create_future()
        self._api = await connect(self._settings.kubeconfig, self._settings.context)
        self._lease = Lease(self._api, self._clock, self._settings)
        await self._lease.acquire()
        self._spawn(self._lease.run())

    async def start(self) -> None:
        """See what there is, say it, and follow grants. Returns when the log has been read.

        Raises LogUnavailable, LogClosed.
        """
        assert self._api is not None, "stand by first"
        self._wire(self._api)
        for run in (*(one.run() for one in self._pods.reflectors), self._nodes.reflector.run(), self._models.run(),
                    self._devices.run(), self._quotas.quotas.run(), self._quotas.ranges.run()):  # fmt: skip
            self._spawn(run)
        nodes = (self._nodes.reflector.synced, self._devices.settled)
        limits = (self._quotas.quotas.settled, self._quotas.ranges.settled)
        synced = (*(one.synced for one in self._pods.reflectors), *nodes, self._models.synced, *limits)
        await self._until_broken(_all_set(synced))
        await self._until_broken(self._training.read())
        async for record in self._event_log.read(Query(topic=Topic.MODELS)):
            self._fold_declared(record.envelope)
            self._view.fold(record)  # all revisions that are still known, not only the newest
            self._training.fold(record)
        async for record in self._event_log.read(Query(topic=Topic.REPLICAS, newest_per_key=True)):
            if isinstance(record.envelope.data, ReplicasObserved):
                self._leftovers.said(record.envelope.data)
            elif isinstance(record.envelope.data, TrainingObserved):
                self._training.found(record.envelope.data)
        async for record in self._event_log.read(Query(topic=Topic.CARDS, newest_per_key=True)):
            self._said_of_nodes(record.envelope.data)
        await self._nodes.publish()
        await self._quotas.publish()
        for run in (self._publisher.run(), self._nodes.run(), self._ring(), self._teller.run(),
                    self._looking.read_all_metrics(), self._stand_ins.run(), self._stand_ins.ring(),
                    self._stand_ins.news.run(), self._quotas.run(), self._gpus.run()):  # fmt: skip
            self._spawn(run)
        self._training.begin()
        self._follow((Topic.PHASES, Topic.REPLICAS), Start(at="end"), self._take_news)
        self._follow((Topic.MODELS, Topic.GRANTS, Topic.DECISIONS), Start(at="newest_per_key"), self._take_states)
        await self._until_broken(self._caught_up.wait())
        self._spawn(self._objects.run())
        self._spawn(self._annotated.run())
        for kind in self._settings.enrolled:
            self._spawn(self._annotated.follow(kind))
        self._training.declare()
        self._pool_objects.begin(self._spawn)

    def _said_of_nodes(self, data: object) -> None:
        """What the log says of them and of quotas."""
        if isinstance(data, CardsObserved):
            self._nodes.said(data)
        elif isinstance(data, LimitsObserved):
            self._quotas.said(data)
        elif isinstance(data, GpusObserved):
            self._gpus.said(data)

    def _state(self, name: ModelName) -> tuple[ReplicasObserved, AnyEnvelope | None]:
        state, cause = self._reconciler.state(name)
        return replace(state, stand_ins=self._stand_ins.told(name)), cause

    def _wire(self, api: KubeApi) -> None:
        settings, clock = self._settings, self._clock
        self._prober = HttpProber(clock)
        self._pods = PodStore(api, settings.namespace, self._pod_changed)
        self._agents = Agents(self._pods, settings.namespace, settings.agent_token)
        self._cache = NodeCache(self._agents, clock)
        self._nodes = NodeStates(api, self._event_log, self._writer, clock, self._node_turned)
        self._devices = DeviceStates(api, clock, settings.namespace, self._nodes.mark)
        self._nodes.devices = self._devices.of
        self._gpus = GpuStates(self._agents, self._event_log, self._writer, clock, self._gpus_changed)
        self._gpus.named = self._devices.named
        self._nodes.gpus = self._gpus.of
        self._pods.unwell = lambda pod: bool(self._gpus.sick(pod))
        self._quotas = QuotaStates(api, self._event_log, self._writer, clock, settings.namespace)
        tools = Tools(
            clock=clock, api=api, lease=self._lease, settings=settings, pods=self._pods, prober=self._prober,
            engine_for=engine_for, node_ready=self._nodes.ready,
        )  # fmt: skip
        self.logs = PodLogs(api, self._pods, settings.namespace)
        self.training_logs = MemberLogs(api, self._pods, settings.namespace)
        self._enrolments = Enrolments(tools, self._declaring, self._spawn)
        sources = PodSources(tools, self._shapes, self._view, self._enrolments, self._cache)
        hands = Hands(self._alarms, self._publisher, self._spawn, sources.source_for, self._told)
        self._tools = tools
        self._reconciler = Reconciler(tools, self._view, hands)
        self._stand_ins = StandInPods(tools, self._view, self._shapes, self._stood_in)
        self._leftovers = Leftovers(tools, self._reconciler, self._view, self._spawn)
        self._training.wire(tools, self._spawn, self._gpus.until_empty)
        self._quotas.holders(self._pods, self._is_ours, self._devices.claimed)
        self._nodes.holders(self._pods, self._view, self._is_ours, self._training.held)
        self._nodes.idle = self._enrolments.idle
        self._enrolments.found = self._idle_found
        numbers = LocalSettings()
        self._looking = Looking(clock, numbers, self._prober, self._reconciler.replicas, self._publisher.news)
        self._words = Words()
        self._models = Reflector(api, MODELS.path(settings.namespace), self._object_changed)
        self._teller = Teller(api, self._lease, clock, settings, self._stories.facts)
        self._objects = ModelObjects(self._models, self._declaring, clock, settings, self._teller.accepted)
        self._teller.object_of = self._objects.object_of
        self._pool_objects = PoolObjects(tools, self._declaring)
        self._annotated = AnnotatedObjects(tools, self._declaring, self._objects.object_of)
        self._enrolments.complain = self._annotated.complain
        self._objects.release = ObjectWriter(lambda: self._api, settings.namespace).release
        self._wired = True

    async def stop(self) -> None:
        """Order nothing more, and let the Lease go. The pods go on: the next relume takes them over.

        The log must be open until this returns: the last states are written to it. Also right after a start that
        failed, or a stop.
        """
        if self._wired:
            self._reconciler.close()
            await self._training.close()
            try:
                async with asyncio.timeout(LAST_WORDS):
                    await self._publisher.wait_idle()
            except TimeoutError:
                logger.warning("the last states of the replicas could not be written")
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._wired:
            await self._prober.close()
            await self._agents.close()
        if self._api is not None:
            await self._lease.release()
            await self._api.close()

    async def wait_broken(self) -> None:
        """Never returns; raises when a part fails in a way that it cannot mend: the Lease lost, a bug, a closed log."""
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
        """Run a part; if it fails, `wait_broken` raises."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._broken.done():
            self._broken.set_exception(error)
            self._broken.exception()  # who waits gets it all the same

    # What it follows.

    def _follow(self, topics: Sequence[str], start: Start, take: Callable[[Batch], None]) -> None:
        self._spawn(Follower(self._event_log, self._clock, topics, start, take).run())

    def _take_states(self, batch: Batch) -> None:
        """Fold declarations, grants and wishes; look at what they change."""
        changed: dict[ModelName, None] = {}
        jobs: dict[str, None] = {}
        for record in batch.records:
            self._fold_declared(record.envelope)
            if (job := self._training.fold(record)) is not None:
                jobs[job] = None
            if (told := self._stories.fold(record.envelope.data)) is not None:
                self._teller.mark(told)
            if (name := self._view.fold(record)) is not None:
                changed[name] = None
        if batch.caught_up and not self._caught_up.is_set():
            self._view.begin_live()
            self._leftovers.adopt()
            self._training.begin_live()
            self._stand_ins.begin()
            self._quotas.look()
            changed = dict.fromkeys(self._view.models)  # each gets its state published, also the empty ones
            self._caught_up.set()
        if self._caught_up.is_set():
            for name in changed:
                self._reconciler.look(name)
                self._stand_ins.look(name)
            self._training.take(jobs)

    def _fold_declared(self, envelope: AnyEnvelope) -> None:
        if isinstance(envelope.data, ModelDeclared):
            event = envelope.data
            shape = self._shapes.fold(event)
            self._objects.declared(event)
            self._annotated.declared(event)
            self._enrolments.declared(ModelName(event.model), None if event.deleted else shape.target)
        elif isinstance(envelope.data, PoolDeclared):
            self._pool_objects.declared(envelope.data)

    def _take_news(self, batch: Batch) -> None:
        for record in batch.records:
            data = record.envelope.data
            match data:
                case ReplicasObserved():
                    if is_older(record.envelope, self._writer.epoch) and data.model in self._view.models:
                        self._publisher.say_again(ModelName(data.model))
                case TrainingObserved():
                    if is_older(record.envelope, self._writer.epoch):
                        self._training.say_again(data.job)
                case ReplicaDrained():
                    self._reconciler.drained(data.model, data.replica, record.envelope.time)
                case ReplicaSuspected():
                    suspect = self._reconciler.find(data.model, data.replica)
                    if suspect is not None:
                        self._spawn(self._looking.check_suspect(suspect, data.reason))

    async def _ring(self) -> None:
        async for name in self._alarms.rings():
            self._reconciler.look(name)

    def _told(self, name: ModelName) -> None:
        """A model's state changed: whoever tells people must know."""
        for one in self._stories.observed(self._state(name)[0]):
            self._teller.ended(name, one.reason, f"{one.replica} drains, since its pod ends: {one.message}")
        self._teller.mark(name)
        for replica in self._reconciler.of(name):
            self._nodes.mark(replica.grant.placement.node)

    def _stood_in(self, name: ModelName) -> None:
        """Something else is to be told of a model's stand-ins."""
        self._publisher.mark(name)
        self._told(name)

    # What the API server says.

    def _is_ours(self, pod: PodView) -> bool:
        ours = self._leftovers.is_ours(pod) or self._enrolments.has(pod) or self._training.is_ours(pod)
        return ours or self._stand_ins.is_ours(pod)

    def _pod_changed(self, pod: PodView, there: bool) -> None:
        if not self._wired:
            return
        if pod.node:
            self._nodes.mark(pod.node)
        self._enrolments.heard(pod, there)
        self._stand_ins.heard(pod, there)
        self._quotas.heard(pod)
        self._training.heard(pod)
        if there and self._caught_up.is_set():
            self._leftovers.heard(pod)

    def _idle_found(self) -> None:
        """Pods of enrolled objects are known to be theirs."""
        for one in self._enrolments.idle():
            self._nodes.mark(one.pod.node)

    def _gpus_changed(self, node: str) -> None:
        self._nodes.mark(node)
        self._pods.look_again(node)

    def _node_turned(self, node: str, ready: bool) -> None:
        """A node is ready again, or not any more: then its replicas must answer by themselves."""
        if self._wired:
            self._training.node_turned()
        if ready or not self._wired:
            return
        for replica in self._reconciler.replicas():
            on = replica.pod is not None and replica.pod.node == node
            if on and replica.state in (ReplicaState.READY, ReplicaState.DRAINING):
                self._spawn(self._leftovers.check_node(replica))

    def _object_changed(self, key: str, item: Json | None) -> None:
        if not self._words.changed(key, item):
            return
        self._objects.changed(key)
        self._annotated.look(key.rpartition("/")[2])
        self._teller.mark(key.rpartition("/")[2])

    # What is seen of it.

    @property
    def api(self) -> KubeApi | None:
        """The API server; None before `stand_by` has reached it."""
        return self._api

    def training_stats(self) -> KubernetesTrainingStats:
        """Of training jobs; zeros before `start`."""
        return self._training.stats()

    def stats(self) -> KubernetesStats:
        """Counts and levels; zeros before `start`."""
        if not self._wired or self._api is None:
            return KubernetesStats()
        replicas = self._reconciler.replicas()
        followed = (*(one.stats for one in self._pods.reflectors), self._nodes.reflector.stats, self._models.stats)
        return KubernetesStats(
            replicas=len(replicas),
            ready=sum(replica.state is ReplicaState.READY for replica in replicas),
            starting=sum(replica.state is ReplicaState.STARTING for replica in replicas),
            starts=self._reconciler.starts, failures=self._reconciler.failures, adopted=self._leftovers.adopted,
            refused_grants=self._view.refused_grants,
            refused_objects=self._objects.refused + self._pool_objects.refused,
            dropped_news=self._publisher.dropped_news, failed_appends=self._publisher.failed_appends,
            api_calls=sum(self._api.calls.values()), broken_watches=sum(one.broken for one in followed),
            forgotten_pasts=sum(one.gone for one in followed),
            status_writes=self._teller.writes + self._pool_objects.status_writes,
            stand_ins=self._stand_ins.waiting, stand_ins_made=self._stand_ins.made,
        )  # fmt: skip


async def _all_set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
