"""Makes each model's pods match its grant: looks, plans, does; counts failures; tells what is.

Level-based, and one life a replica: an event only says about which model something changed; what is done follows from
the whole view of that model (`deploy.local.plan`, the same as on one machine). A replica that exists here is the
expectation that its pod will come, or go: nothing is ordered twice while an answer is awaited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.kubernetes.attempts import Attempts, Key
from deploy.kubernetes.replica import PodReplica, PodSource, StartFailed
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.alarms import Alarms
from deploy.local.backoff import Failure
from deploy.local.declared import Declared, Reason
from deploy.local.plan import Actual, Command, Drain, Start, Stop, TakeBack, plan
from deploy.local.publisher import Publisher
from deploy.local.view import ModelView, View
from events.envelope import AnyEnvelope
from events.names import ModelName, ReplicaName
from events.types.grants import ReplicaGrant
from events.types.phases import ReplicaPhaseChanged
from events.types.replicas import Phase, ReplicasObserved, ReplicaState, ReplicaStatus
from events.units import Instant, format_duration

logger = logging.getLogger(__name__)

SERVED: Final = (ReplicaState.READY, ReplicaState.DRAINING)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
SourceFor = Callable[[PodReplica], PodSource]
"""Raises ValueError when the declaration says nothing that a pod could be made of."""


@dataclass(slots=True)
class _Runs:
    """What exists of a model."""

    replicas: dict[ReplicaName, PodReplica] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=Attempts)


@dataclass(frozen=True, slots=True)
class Left:
    """A pod that is there, and whose it is; `status` is what the log says of the replica."""

    model: str
    uid: str
    grant: ReplicaGrant
    pod: PodView
    status: ReplicaStatus | None


@dataclass(frozen=True, slots=True)
class Hands:
    """What a reconciler works with. `changed` hears of each model whose state changed."""

    alarms: Alarms[ModelName]
    publisher: Publisher[ModelName]
    spawn: Spawn
    source_for: SourceFor
    changed: Callable[[ModelName], None]


class Reconciler:
    """All models' replicas."""

    def __init__(self, tools: Tools, view: View, hands: Hands) -> None:
        self._tools = tools
        self._view = view
        self._hands = hands
        self._runs: dict[ModelName, _Runs] = {}
        self._told: dict[PodReplica, tuple[ReplicaState, Phase | None]] = {}
        self._closing = False
        self.starts = 0
        self.failures = 0

    def replicas(self) -> list[PodReplica]:
        """All that exist."""
        return [replica for runs in self._runs.values() for replica in runs.replicas.values()]

    def of(self, model: str) -> list[PodReplica]:
        """Those of a model."""
        runs = self._runs.get(ModelName(model))
        return [] if runs is None else list(runs.replicas.values())

    def find(self, model: str, replica: str) -> PodReplica | None:
        """One that exists."""
        runs = self._runs.get(ModelName(model))
        return None if runs is None else runs.replicas.get(ReplicaName(replica))

    def close(self) -> None:
        """Order nothing any more: relume stops, and the pods go on."""
        self._closing = True

    def drained(self, model: str, name: str, said_at: Instant) -> None:
        """The slot authority has no lease left on a replica that drains.

        What was said before this drain began is about an earlier one, which was taken back.
        """
        replica = self.find(model, name)
        if replica is None or replica.draining_since is None or said_at < replica.draining_since:
            return
        if replica.state is ReplicaState.DRAINING:
            replica.emptied()
            self.look(ModelName(model))

    def look(self, name: ModelName) -> None:
        """Make one model as it should be, as far as that can be ordered now."""
        if self._closing:
            return
        self._hands.publisher.mark(name)
        self._hands.changed(name)
        runs = self._runs.setdefault(name, _Runs())
        view = self._view.models.get(name, ModelView())
        self._forget(runs, view)
        granted = self._view.granted(name)
        made = plan(granted, _actual(runs, view.uid), self._tools.clock.now())
        for command in made.commands:
            self._do(name, runs, command)
        # once more for the next instant: what was done now may have set a new one, such as a drain's bound
        again_at = plan(granted, _actual(runs, view.uid), self._tools.clock.now()).again_at
        self._hands.alarms.set(name, _earliest(again_at, _forget_at(runs, view)))
        if not runs.replicas and not runs.attempts:
            del self._runs[name]

    def _do(self, name: ModelName, runs: _Runs, command: Command) -> None:
        match command:
            case Start():
                self._start(name, runs, command.grant)
            case Drain():
                runs.replicas[command.replica].drain()
            case TakeBack():
                runs.replicas[command.replica].take_back()
            case Stop():
                runs.replicas[command.replica].stop(command.why)

    def _start(self, name: ModelName, runs: _Runs, grant: ReplicaGrant) -> None:
        view = self._view.models[name]
        declared = view.revisions.get(grant.revision)
        if declared is None:
            logger.warning("%s is granted, but revision %d is not known (yet)", grant.replica, grant.revision)
            return  # its declaration wakes us
        try:
            replica = self._made(_readable(declared), grant)
        except ValueError as error:
            now = self._tools.clock.now()
            failure = Failure(now, str(Reason.INVALID_SPEC), str(error))
            runs.attempts.refused((view.uid, grant.revision), failure, now)
            return
        self.starts += 1
        self._begin(name, replica)

    def _made(self, declared: Declared, grant: ReplicaGrant) -> PodReplica:
        replica = PodReplica(self._tools, declared, grant, self._changed)
        replica.source = self._hands.source_for(replica)
        return replica

    def adopt(self, left: Left) -> bool:
        """Go on with a pod that an earlier relume left, or that was made without our knowing. False when what it was
        made of is not known any more."""
        model = ModelName(left.model)
        view = self._view.models.get(model, ModelView())
        declared = view.revisions.get(left.grant.revision)
        if not isinstance(declared, Declared) or view.uid != left.uid:
            return False
        pod, status = left.pod, left.status
        try:
            replica = self._made(declared, left.grant)
            if status is not None and status.state in SERVED and status.uid == left.uid and pod.ip and pod.running:
                replica.take_over(status, pod)
        except (ValueError, StartFailed):
            return False
        self._begin(model, replica)
        return True

    def _begin(self, name: ModelName, replica: PodReplica) -> None:
        self._runs.setdefault(name, _Runs()).replicas[replica.name] = replica
        self._hands.spawn(self._live(replica))

    async def _live(self, replica: PodReplica) -> None:
        await replica.live()
        model = replica.declared.model
        self._told.pop(replica, None)
        self._runs[model].attempts.ended(replica)
        del self._runs[model].replicas[replica.name]
        self.look(model)

    def _changed(self, replica: PodReplica) -> None:
        """A replica's state or phase changed."""
        model = replica.declared.model
        self._hands.publisher.mark(model)
        self._hands.changed(model)
        if replica.state is None:
            return
        now = (replica.state, replica.phase)
        before = self._told.get(replica)
        if before == now:
            return
        self._told[replica] = now
        self._hands.publisher.news(
            ReplicaPhaseChanged(
                model=model, replica=replica.name, revision=replica.grant.revision, state=replica.state,
                phase=replica.phase, at=self._tools.clock.now(),
                message=replica.verdict.message if replica.verdict else "",
            )
        )  # fmt: skip
        if before is None or before[0] is not replica.state:
            _say(replica)
        if replica.state is ReplicaState.FAILED:
            self._count_failure(replica)
        elif replica.state is ReplicaState.READY and before is not None and before[0] is ReplicaState.STARTING:
            self._runs[model].attempts.succeeded(replica)

    def _count_failure(self, replica: PodReplica) -> None:
        runs = self._runs[replica.declared.model]
        failure = runs.attempts.failed(replica, runs.replicas.values(), self._tools.clock.now())
        self.failures += 1
        logger.warning("%s failed: %s: %s", replica.name, failure.reason, failure.message)

    def _forget(self, runs: _Runs, view: ModelView) -> None:
        """Drop back-offs of other declarations and revisions, forgiven ones, and those nobody has asked about."""
        now = self._tools.clock.now()
        forget_at = _forget_at(runs, view)
        keep = _asked_for(view) if forget_at is None or now < forget_at else set()
        runs.attempts.forget(keep, runs.replicas.values(), now)

    def state(self, name: ModelName) -> tuple[ReplicasObserved, AnyEnvelope | None]:
        """A model's state now, and the grant that led to it."""
        view = self._view.models.get(name, ModelView())
        runs = self._runs.get(name, _Runs())
        told = runs.attempts.told()
        epoch = 0 if view.grant is None else view.grant.epoch or 0
        observed = ReplicasObserved(
            model=name, uid=view.uid,
            replicas=tuple(one.status() for one in runs.replicas.values() if one.state is not None),
            failures=told.failures, reason=told.reason, message=told.message, log_tail=told.log_tail,
            retry_at=told.retry_at, grant_epoch=epoch,
        )  # fmt: skip
        return observed, view.grant


def _readable(declared: Declared | str) -> Declared:
    """A declaration that can be read; ValueError tells why it cannot."""
    if isinstance(declared, str):
        raise ValueError(declared)  # noqa: TRY004 - a text in its place is why it is wrong
    return declared


def _say(replica: PodReplica) -> None:
    """The process's own log tells of each replica that comes, serves and goes; failures are told with their reason."""
    if replica.state is ReplicaState.READY and replica.ready_at is not None:
        logger.info("%s is ready after %s", replica.name, format_duration(replica.ready_at - replica.created_at))
    elif replica.state is not None and replica.state is not ReplicaState.FAILED:
        logger.info("%s is %s", replica.name, replica.state.value.lower())


def _actual(runs: _Runs, uid: str) -> Actual:
    exist = tuple(one.actual() for one in runs.replicas.values() if one.state is not None)
    return Actual(exist, runs.attempts.retries(uid))


def _asked_for(view: ModelView) -> set[Key]:
    """The declared revision, and those that the grant still names."""
    grant = view.valid_grant
    named = {one.revision for one in (grant.replicas if grant else ()) if not one.drain}
    return {(view.uid, revision) for revision in {view.revision} | named}


def _forget_at(runs: _Runs, view: ModelView) -> Instant | None:
    """When the failures of a model that is granted nothing are forgotten; None: never, or there are none."""
    grant = view.valid_grant
    wanted = grant is not None and any(not one.drain for one in grant.replicas)
    return None if wanted or runs.replicas else runs.attempts.forget_at()


def _earliest(*instants: Instant | None) -> Instant | None:
    return min((instant for instant in instants if instant is not None), default=None)
