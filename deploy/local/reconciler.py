"""Makes each model's replicas match its grant: looks, plans, does; counts failures; tells what is.

Everything here runs on the event loop without waiting, except the lives of the replicas, which have a task each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from deploy.local import backoff
from deploy.local.adopting import Survivor
from deploy.local.alarms import Alarms
from deploy.local.backoff import Backoff, Failure
from deploy.local.declared import Declared, Reason
from deploy.local.plan import Actual, Command, Drain, Sleep, Start, Stop, TakeBack, Wake, plan
from deploy.local.publisher import Publisher
from deploy.local.replica import Replica
from deploy.local.starting import Tools, prepare
from deploy.local.view import ModelView, View
from events.envelope import AnyEnvelope
from events.names import ModelName, ReplicaName
from events.types.grants import Placement, ReplicaGrant
from events.types.phases import ReplicaPhaseChanged
from events.types.replicas import Phase, ReplicasObserved, ReplicaState
from events.units import Instant, format_duration

logger = logging.getLogger(__name__)

FORGET_FAILURES: Final = backoff.LONGEST_DELAY
"""A model that has been granted nothing for so long after a failure starts with a clean slate."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(slots=True)
class _Runs:
    """What exists of a model. Back-off by (uid, revision): another declaration or revision begins anew."""

    replicas: dict[ReplicaName, Replica] = field(default_factory=dict)
    backoffs: dict[tuple[str, int], Backoff] = field(default_factory=dict)


class Reconciler:
    """All models' replicas. `spawn` runs their lives."""

    def __init__(
        self, tools: Tools, view: View, alarms: Alarms[ModelName], publisher: Publisher[ModelName], spawn: Spawn
    ) -> None:
        self._tools = tools
        self._view = view
        self._alarms = alarms
        self._publisher = publisher
        self._spawn = spawn
        self._runs: dict[ModelName, _Runs] = {}
        self._told: dict[Replica, tuple[ReplicaState, Phase | None]] = {}
        self._counting: dict[Replica, asyncio.Task[None]] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._closing = False
        self.starts = 0
        self.failures = 0

    def replicas(self) -> list[Replica]:
        """All that exist."""
        return [replica for runs in self._runs.values() for replica in runs.replicas.values()]

    def find(self, model: str, replica: str) -> Replica | None:
        """One that exists."""
        runs = self._runs.get(ModelName(model))
        return None if runs is None else runs.replicas.get(ReplicaName(replica))

    def close(self) -> None:
        """Start nothing any more, and follow no plan: all shall end."""
        self._closing = True

    def lives(self) -> frozenset[asyncio.Task[None]]:
        """The tasks of all replicas: each ends when its replica is gone."""
        return frozenset(self._lives)

    def drained(self, model: str, name: str, said_at: Instant) -> None:
        """The slot authority has no lease left on a replica that drains.

        What was said before this drain began is about an earlier one, which was taken back.
        """
        replica = self.find(model, name)
        if replica is None or replica.draining_since is None or said_at < replica.draining_since:
            return
        if replica.state is ReplicaState.DRAINING:
            replica.drained = True
            if self._closing:
                replica.stop("drained")
            else:
                self.look(ModelName(model))

    def look(self, name: ModelName) -> None:
        """Make one model as it should be, as far as that can be ordered now."""
        self._publisher.mark(name)
        if self._closing:
            return
        runs = self._runs.setdefault(name, _Runs())
        view = self._view.models.get(name, ModelView())
        self._forget(runs, view)
        granted = self._view.granted(name)
        made = plan(granted, _actual(runs, view.uid), self._tools.clock.now())
        for command in made.commands:
            self._do(name, runs, command)
        # once more for the next instant: what was done now may have set a new one, such as a drain's bound
        again_at = plan(granted, _actual(runs, view.uid), self._tools.clock.now()).again_at
        self._alarms.set(name, _earliest(again_at, _forget_at(runs, view)))
        if not runs.replicas and not runs.backoffs:
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
            case Sleep():
                runs.replicas[command.replica].doze(command.level)
            case Wake():
                runs.replicas[command.replica].wake()

    def _start(self, name: ModelName, runs: _Runs, grant: ReplicaGrant) -> None:
        declared = self._view.models[name].revisions.get(grant.revision)
        if declared is None:
            logger.warning("%s is granted, but revision %d is not known (yet)", grant.replica, grant.revision)
            return  # its declaration wakes us
        if not isinstance(declared, Declared):
            now = self._tools.clock.now()
            key = (self._view.models[name].uid, grant.revision)
            failure = Failure(now, str(Reason.INVALID_SPEC), declared)
            runs.backoffs[key] = backoff.failed(runs.backoffs.get(key, Backoff()), failure, now)
            return
        self.starts += 1
        self._begin(name, Replica(self._tools, declared, grant, self._changed))

    def adopt(self, survivor: Survivor) -> bool:
        """Go on with a replica that outlived another relume; False when what it was made of is not known any more."""
        name, status = ModelName(survivor.model), survivor.status
        view = self._view.models.get(name, ModelView())
        declared = view.revisions.get(status.revision)
        if not isinstance(declared, Declared) or view.uid != status.uid:
            return False
        grant = ReplicaGrant(
            replica=status.replica, revision=status.revision, resources=status.resources,
            placement=Placement(node=status.node, gpus=status.gpus),
        )  # fmt: skip
        if declared.wanted is not None:  # its engine has them; which path it was given does not matter any more
            declared = replace(declared, weights=declared.wanted.address)
        adapters = tuple(replace(one, path=one.path or one.name) for one in declared.adapters)
        declared = replace(declared, adapters=adapters)
        try:
            prepared = prepare(self._tools, declared, grant, int(status.address.rpartition(":")[2]))
        except ValueError:
            return False
        replica = Replica(self._tools, declared, grant, self._changed)
        replica.take_over(status, survivor.process, prepared)
        self._begin(name, replica)
        return True

    def _begin(self, name: ModelName, replica: Replica) -> None:
        self._runs.setdefault(name, _Runs()).replicas[replica.name] = replica
        life = self._spawn(self._live(replica))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    async def _live(self, replica: Replica) -> None:
        await replica.live()
        counting = self._counting.pop(replica, None)
        if counting is not None:
            await counting  # a new start must know of this failure
        self._told.pop(replica, None)
        self._count_good_end(replica)
        del self._runs[replica.declared.model].replicas[replica.name]
        self.look(replica.declared.model)

    def _changed(self, replica: Replica) -> None:
        """A replica's state, phase or pid changed."""
        self._publisher.mark(replica.declared.model)
        if replica.state is None:
            return
        now = (replica.state, replica.phase)
        before = self._told.get(replica)
        if before == now:
            return
        self._told[replica] = now
        self._publisher.news(
            ReplicaPhaseChanged(
                model=replica.declared.model, replica=replica.name, revision=replica.grant.revision,
                state=replica.state, phase=replica.phase, at=self._tools.clock.now(),
                message=replica.verdict.message if replica.verdict else "",
            )
        )  # fmt: skip
        if before is None or before[0] is not replica.state:
            _say(replica)
        if replica.state is ReplicaState.FAILED:
            self._counting[replica] = self._spawn(self._count_failure(replica))
        elif replica.state is ReplicaState.READY and before is not None and before[0] is ReplicaState.STARTING:
            self._count_success(replica)
        elif replica.state is ReplicaState.SLEEPING:  # it may be wanted again already; else its end is set
            asyncio.get_running_loop().call_soon(self.look, replica.declared.model)

    async def _count_failure(self, replica: Replica) -> None:
        failure = await replica.failure()
        now = self._tools.clock.now()
        runs, key = self._runs[replica.declared.model], _key(replica)
        before = self._settled(runs, key, now)
        if replica.ready_at is None:
            runs.backoffs[key] = backoff.failed(before, failure, now)
        else:
            runs.backoffs[key] = backoff.broke(before, failure, replica.ready_at, now)
        self.failures += 1
        logger.warning("%s failed: %s: %s", replica.name, failure.reason, failure.message)
        self._publisher.mark(replica.declared.model)

    def _settled(self, runs: _Runs, key: tuple[str, int], now: Instant) -> Backoff:
        """The back-off so far; forgiven when some replica has been ready for longer than its probation."""
        before = runs.backoffs.get(key, Backoff())
        ready = [one.ready_at for one in runs.replicas.values() if _key(one) == key and one.ready_at is not None]
        return backoff.lived(before) if any(now - at >= backoff.PROBATION for at in ready) else before

    def _count_success(self, replica: Replica) -> None:
        runs, key = self._runs[replica.declared.model], _key(replica)
        before = runs.backoffs.get(key)
        if before is not None:
            runs.backoffs[key] = backoff.succeeded(before)

    def _count_good_end(self, replica: Replica) -> None:
        """A replica that was ready and ended because it was told to has lived, however short its life: a model that
        goes to zero within seconds has no other way to earn its next start."""
        runs, key = self._runs[replica.declared.model], _key(replica)
        before, verdict = runs.backoffs.get(key), replica.verdict
        ended_well = verdict is not None and verdict.reason is None and replica.ready_at is not None
        if before is not None and ended_well:
            runs.backoffs[key] = backoff.lived(before)

    def _forget(self, runs: _Runs, view: ModelView) -> None:
        """Drop back-offs of other declarations and revisions, forgiven ones, and those nobody has asked about."""
        now = self._tools.clock.now()
        forget_at = _forget_at(runs, view)
        if forget_at is not None and now >= forget_at:
            runs.backoffs.clear()
        asked = _revisions_asked_for(view)
        for key in list(runs.backoffs):
            if key[0] != view.uid or key[1] not in asked or self._settled(runs, key, now) == Backoff():
                del runs.backoffs[key]

    def state(self, name: ModelName) -> tuple[ReplicasObserved, AnyEnvelope | None]:
        """A model's state now, and the grant that led to it."""
        view = self._view.models.get(name, ModelView())
        runs = self._runs.get(name, _Runs())
        told = _worst(runs.backoffs)
        epoch = 0 if view.grant is None else view.grant.epoch or 0
        observed = ReplicasObserved(
            model=name, uid=view.uid,
            replicas=tuple(one.status() for one in runs.replicas.values() if one.state is not None),
            failures=told.failures, reason=told.reason, message=told.message, log_tail=told.log_tail,
            retry_at=told.retry_at, grant_epoch=epoch,
        )  # fmt: skip
        return observed, view.grant


def _say(replica: Replica) -> None:
    """The process's own log tells of each replica that comes, serves and goes; failures are told with their reason."""
    if replica.state is ReplicaState.READY and replica.ready_at is not None:
        logger.info("%s is ready after %s", replica.name, format_duration(replica.ready_at - replica.created_at))
    elif replica.state is not None and replica.state is not ReplicaState.FAILED:
        logger.info("%s is %s", replica.name, replica.state.value.lower())


def _key(replica: Replica) -> tuple[str, int]:
    return replica.declared.uid, replica.grant.revision


def _actual(runs: _Runs, uid: str) -> Actual:
    retries = {
        revision: known.retry_at
        for (of, revision), known in runs.backoffs.items()
        if of == uid and known.retry_at is not None
    }
    return Actual(tuple(one.actual() for one in runs.replicas.values() if one.state is not None), retries)


def _revisions_asked_for(view: ModelView) -> set[int]:
    """The declared one, and those that the grant still names."""
    grant = view.valid_grant
    return {view.revision} | {one.revision for one in (grant.replicas if grant else ()) if not one.drain}


def _forget_at(runs: _Runs, view: ModelView) -> Instant | None:
    """When the failures of a model that is granted nothing are forgotten; None: never, or there are none."""
    grant = view.valid_grant
    wanted = grant is not None and any(not one.drain for one in grant.replicas)
    failed_at = [known.last_failure_at for known in runs.backoffs.values() if known.last_failure_at is not None]
    if wanted or runs.replicas or not failed_at:
        return None
    return Instant(max(failed_at) + FORGET_FAILURES)


def _earliest(*instants: Instant | None) -> Instant | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _worst(backoffs: Mapping[tuple[str, int], Backoff]) -> Backoff:
    """What people should hear: the newest revision that fails, else the newest that has something to say."""
    ranked = sorted(backoffs.items(), key=lambda item: (item[1].failures > 0, bool(item[1].reason), item[0][1]))
    return ranked[-1][1] if ranked else Backoff()
