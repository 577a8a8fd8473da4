"""Training as a part of the Kubernetes adapter: all that concerns jobs, behind a few calls.

`wire` once the API server is spoken to; `found` with what the log says of runs; `fold` and `take` follow the log;
`begin_live` when it has been read; `close` at the end. Its end is not its pods' end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.api.training_facts import JobFacts
from deploy.kubernetes.api import ApiError, ApiUnavailable
from deploy.kubernetes.occupied import Left
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import TRAINING_JOBS
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.training.adopting import adopted, is_member, left_of
from deploy.kubernetes.training.enrolled_run import EnrolledRun
from deploy.kubernetes.training.enrolling import Enrolled, EnrolledJob
from deploy.kubernetes.training.link import TrainerLink
from deploy.kubernetes.training.looks import Looks
from deploy.kubernetes.training.objects import Declares, JobObjects, Source, of_training_job
from deploy.kubernetes.training.run import PodRun
from deploy.kubernetes.training.shaping import lasting
from deploy.kubernetes.training.telling import TrainingTeller
from deploy.kubernetes.training.tools import PodTools
from deploy.kubernetes.views import PodView
from deploy.local.alarms import Alarms
from deploy.local.publisher import Publisher
from deploy.local.training.jobs import Jobs
from deploy.local.training.lives import Hands
from deploy.local.training.starting import Counts, Shape
from deploy.local.training.story import Story
from deploy.local.training.view import JobView, TrainingView
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, Record
from events.types.training import RunState, TrainingDeclared, TrainingGranted, TrainingObserved
from events.units import Instant, Seconds
from events.writer import EventWriter
from preemption.core.training import TrainingPolicy

logger = logging.getLogger(__name__)

LAST_WORDS: Final = Seconds(3.0)
"""At the end: for the last states to be written."""
UNGRANTED_FOR: Final = Seconds(5.0)
"""How long an enrolled Job may run without a grant. Chosen: grants come within a second where there is room."""
AnyPodRun = PodRun | EnrolledRun
Emptied = Callable[[Sequence[Left]], Awaitable[None]]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class KubernetesTrainingStats:
    """Counts since the start, and levels now."""

    training_running: int = 0
    training_starting: int = 0
    training_runs: int = 0
    training_failures: int = 0
    training_notices: int = 0
    training_checkpoints: int = 0
    training_adopted: int = 0
    training_enrolled: int = 0
    refused_training_grants: int = 0
    refused_training_objects: int = 0


class KubernetesTraining:
    """See the module. Used on one event loop."""

    def __init__(
        self, log: EventLog, writer: EventWriter, clock: Clock, declaring: Declares, settings: KubernetesSettings
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._view = TrainingView(None)
        self._looks = Looks()
        self._alarms: Alarms[str] = Alarms(clock)
        self._publisher: Publisher[str] = Publisher(log, writer, clock, self._state)
        self._declared: dict[str, TrainingDeclared] = {}
        self._granted: dict[str, TrainingGranted] = {}
        self._found: dict[str, TrainingObserved] = {}
        self._adopted = 0
        self.objects = JobObjects(declaring, clock, settings.namespace, self._accepted)
        self._tools: PodTools
        self._jobs: Jobs[AnyPodRun]
        self._teller: TrainingTeller
        self._enrolled: Enrolled
        self._reflector: Reflector
        self._wired = False
        self._spawn: Spawn

    def wire(self, tools: Tools, spawn: Spawn, emptied: Emptied) -> None:
        """Make what is needed. Nothing runs yet. `emptied`: see `PodTools`."""
        self._spawn = spawn
        self._tools = PodTools(
            clock=self._clock, api=tools.api, lease=tools.lease, namespace=self._settings.namespace,
            limits=self._settings.limits, pods=tools.pods, link=TrainerLink(), node_ready=tools.node_ready,
            look=self._looks.of, record=self._publisher.record, news=self._publisher.news, counts=Counts(),
            emptied=emptied,
        )  # fmt: skip
        hands = Hands(self._clock, self._make, self._prove)
        self._jobs = Jobs(hands, self._view, self._alarms, self._publisher, spawn)
        path = TRAINING_JOBS.path(self._settings.namespace)
        self._reflector = Reflector(tools.api, path, lambda key, _: self._object_changed(key))
        self._enrolled = Enrolled(self._tools, self._object_changed)
        self.objects.sources += [
            Source(TRAINING_JOBS, self._reflector, of_training_job, self._reflector.synced.is_set),
            *self._enrolled.sources,
        ]
        self._teller = TrainingTeller(tools.api, tools.lease, self._clock, self._settings, self._facts)
        self._teller.object_of, self._teller.warning = self.objects.object_of, self._warning
        self._wired = True

    async def read(self) -> None:
        """Begin to follow the objects; returns when they have been listed, or may not be: an older installation has
        neither the definition nor the rights, and models go on without."""
        self._spawn(self._reflector.run())
        self._spawn(self._enrolled.run())
        await self._reflector.settled.wait()
        await self._enrolled.settled.wait()
        for source in self.objects.sources:
            if source.reflector.refusal:
                told = "training of %s is not followed: %s; relume doctor tells what is missing"
                logger.warning(told, source.resource.plural, source.reflector.refusal)

    def found(self, observed: TrainingObserved) -> None:
        """What the log says of the newest run of a job. Before `begin_live`."""
        self._found[observed.job] = observed

    def begin(self) -> None:
        """Tell what is."""
        for work in (self._publisher.run(), self._ring(), self._teller.run(), self._hold_back()):
            self._spawn(work)

    def declare(self) -> None:
        """Make declarations of objects: both sides have been read."""
        self._spawn(self.objects.run())
        for source in self.objects.sources:
            if not source.listed():
                self._spawn(self._once_listed(source))

    async def _once_listed(self, source: Source) -> None:
        """What was not to be seen is: a right was given, a kind came to be served."""
        await source.reflector.synced.wait()
        self.objects.look_at_all()

    # What it follows.

    def fold(self, record: Record) -> str | None:
        """Take a record in; the job about which something changed, if any."""
        data = record.envelope.data
        if isinstance(data, TrainingDeclared):
            self._declared[data.job] = data
            self._looks.fold(data)
            self.objects.declared(data)
        elif isinstance(data, TrainingGranted):
            self._granted[data.job] = data
        return self._view.fold(record)

    def begin_live(self) -> None:
        """The log has been read: go on with the runs of an earlier relume, and follow grants from now on."""
        self._view.begin_live()
        for observed in self._found.values():
            self._adopt(observed)
        self._found = {}
        self._sweep()
        self.take(self._view.jobs.keys() | self._jobs.jobs.keys())

    def take(self, jobs: Iterable[str]) -> None:
        """Look at these."""
        for job in list(jobs):
            self._jobs.look(job)
            self._teller.mark(job)

    def say_again(self, job: str) -> None:
        """An adapter that was replaced has told a state over ours; of what we have none, its own stands."""
        if job in self._jobs.jobs:
            self._publisher.say_again(job)

    def _adopt(self, observed: TrainingObserved) -> None:
        self._jobs.restore(observed)
        if observed.state is RunState.ENDED:
            return
        view = self._view.jobs.get(observed.job, JobView())
        policy = view.revisions.get(observed.revision) if view.uid == observed.uid else None
        if not isinstance(policy, TrainingPolicy):  # not known, or not to be read, any more: by the defaults then
            policy = TrainingPolicy(job=observed.job, command=("unknown",))
        run = adopted(observed, policy, self._make_for, self._changed)
        run.take_over(observed)
        run.epoch = view.epoch
        grant = self._view.granted(observed.job)
        stands = grant is not None and (grant.uid, grant.run) == (observed.uid, observed.run)
        if stands and grant is not None and grant.notice is not None and grant.notice.id == run.actual().notice:
            run.give(grant.notice)
        self._jobs.go_on(run)
        self._adopted += 1
        logger.info("goes on with run %d of %s", observed.run, observed.job)

    def _make(self, shape: Shape, story: Story, _: Callable[[AnyPodRun], None]) -> AnyPodRun:
        return self._make_for(shape, story, self._changed)  # people are told too

    def _make_for(self, shape: Shape, story: Story, changed: Callable[[AnyPodRun], None]) -> AnyPodRun:
        target = self._looks.target(shape.policy.job, shape.uid)
        if target is not None:
            return EnrolledRun(self._tools, shape, story, self._enrolled.job(target), changed)
        return PodRun(self._tools, shape, story, changed)

    async def _prove(self, observed: TrainingObserved) -> None:
        """Its run had ended: its pods were over, or gone. Their GPUs must be seen empty, where anybody sees them."""
        await self._tools.emptied(left_of(observed, self._settings.namespace))

    def _state(self, job: str) -> tuple[TrainingObserved, AnyEnvelope | None] | None:
        return self._jobs.state(job)

    def _changed(self, run: AnyPodRun) -> None:
        job = run.shape.policy.job
        self._publisher.mark(job)
        self._teller.mark(job)

    def _object_changed(self, key: str) -> None:
        self.objects.changed(key)
        self._teller.mark(key.rpartition("/")[2])
        for run in self._jobs.runs() if self._wired else ():
            if isinstance(run, EnrolledRun) and run.shape.policy.job == key.rpartition("/")[2]:
                run.wake()

    def _accepted(self, name: str, generation: int, problem: str) -> None:
        self._teller.accepted(name, generation, problem)

    async def _ring(self) -> None:
        async for job in self._alarms.rings():
            self._jobs.look(job)

    async def _hold_back(self) -> None:
        """Suspend enrolled Jobs that run without a grant. One that was just enrolled, or made, has some seconds: there
        may be room for it, and then it is granted what it has."""
        since: dict[str, Instant] = {}
        while True:
            now = self._clock.now()
            loose = {job.name: job for job in self._enrolled.all() if self._runs_loose(job)}
            since = {name: since.get(name, now) for name in loose}
            for name, at in since.items():
                if now - at >= UNGRANTED_FOR:
                    await self._suspend(loose[name])
            await self._clock.sleep_until(Instant(now + 1.0))

    def _runs_loose(self, job: EnrolledJob) -> bool:
        if job.suspended or job.end:
            return False
        runs = self._jobs.jobs[job.name].runs if job.name in self._jobs.jobs else []
        return not any(run.state is not RunState.ENDED for run in runs)

    async def _suspend(self, job: EnrolledJob) -> None:
        try:
            await job.suspend("relume: there is no room for it")
        except (ApiError, ApiUnavailable) as error:
            logger.warning("Job %s cannot be suspended: %s", job.name, error)

    def _sweep(self) -> None:
        """Delete the pods of runs that nobody knows any more: the log was lost, say. They hold GPUs."""
        known = {one.name for run in self._jobs.runs() if isinstance(run, PodRun) for one in run.gang.members}
        for pod in list(self._tools.pods):
            lost = is_member(pod, self._settings.namespace) and pod.name not in known
            if lost and not pod.over and not pod.deleting:
                logger.info("pod %s is deleted: its run is not known any more", pod.name)
                self._spawn(self._tools.delete(pod.name, pod.uid))

    # What the API server says.

    def is_ours(self, pod: PodView) -> bool:
        """Whether a pod's GPUs are those of a training job's grant, and not another's."""
        return is_member(pod, self._settings.namespace) or self._is_enrolled(pod)

    def _is_enrolled(self, pod: PodView) -> bool:
        """Whether it is an enrolled Job's, and where that was granted GPUs; until it is granted any, wherever it is.
        Its scheduler may have put it elsewhere: there it takes what others could have."""
        job = self._enrolled.has(pod) if self._wired else None
        if job is None:
            return False
        grant = self._view.granted(job.name)
        members = grant.members if grant is not None else ()
        return not members or pod.node in {one.placement.node for one in members}

    def heard(self, pod: PodView) -> None:
        """A pod changed: perhaps one of an enrolled Job."""
        for run in self._jobs.runs() if self._wired else ():
            if isinstance(run, EnrolledRun):
                run.heard(pod)

    def node_turned(self) -> None:
        """A node is ready again, or not any more: people are told whose pods are on it."""
        for run in self._jobs.runs():
            run.wake()

    def held(self) -> Mapping[str, frozenset[str]]:
        """By node: the cards that runs were granted, or still have."""
        cards: dict[str, set[str]] = {}
        for job in self._view.jobs:
            grant = self._view.granted(job)
            members = [(one.placement.node, one.placement.gpus) for one in (grant.members if grant else ())]
            members += [
                (one.placement.node, one.placement.gpus)
                for run in (self._jobs.jobs[job].runs if job in self._jobs.jobs else ())
                for one in run.shape.members
            ]
            for node, gpus in members:
                cards.setdefault(node, set()).update(gpus)
        return {node: frozenset(names) for node, names in cards.items()}

    # What is told.

    def _facts(self, job: str) -> JobFacts | None:
        declared, state = self._declared.get(job), self._jobs.state(job)
        if declared is None:
            return None
        return JobFacts(
            declared=declared, now=self._clock.now(), granted=self._granted.get(job),
            observed=None if state is None else state[0],
        )  # fmt: skip

    def _warning(self, job: str) -> tuple[str, str]:
        """What people should know of a job, whatever its state."""
        runs = self._jobs.jobs[job].runs if job in self._jobs.jobs else []
        for run in runs:
            reason, message = run.trouble()
            if run.state is not RunState.ENDED and reason:
                return reason, message
        declared = self._declared.get(job)
        if declared is None or self._looks.target(job, declared.uid) is not None:
            return "", ""
        try:
            look = self._looks.of(job, declared.uid, declared.revision)
        except ValueError as error:
            return "InvalidSpec", str(error)
        if not lasting(look.pod):
            return "NoLastingFolder", (
                "no claim and no folder of the node is mounted: checkpoints go with the pod, and each run begins anew; "
                "add pod.mounts: [{path: ..., claim: ...}]"
            )
        return "", ""

    async def close(self) -> None:
        """Order nothing more, and write the last states. The pods go on."""
        if not self._wired:
            return
        self._jobs.close()
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._publisher.wait_idle()
        except TimeoutError:
            logger.warning("the last states of training jobs could not be written")
        await self._tools.link.close()

    def stats(self) -> KubernetesTrainingStats:
        """Counts and levels; zeros before `wire`."""
        if not self._wired:
            return KubernetesTrainingStats()
        states = [run.state for run in self._jobs.runs()]
        return KubernetesTrainingStats(
            training_running=states.count(RunState.RUNNING), training_starting=states.count(RunState.STARTING),
            training_runs=self._jobs.started, training_failures=self._jobs.failed,
            training_notices=self._jobs.notices, training_checkpoints=self._tools.counts.checkpoints,
            training_adopted=self._adopted, training_enrolled=self._enrolled.count,
            refused_training_grants=self._view.refused_grants, refused_training_objects=self.objects.refused,
        )  # fmt: skip
