"""What to do so that a model's replicas become what was granted. Pure: the whole view in, commands out.

Nothing here remembers: the same view gives the same commands, whichever event led here, and commands that were done
change the view so that they are not given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from coldstart.core.policy import SleepPolicy
from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import ReplicaState
from events.units import Instant, Seconds

NOT_WORTH: Final = "its sleep is not worth the memory that it keeps: see relume explain"


@dataclass(frozen=True, slots=True)
class Granted:
    """The newest valid grant of a model and what its declaration says about ending replicas."""

    uid: str
    replicas: tuple[ReplicaGrant, ...] = ()
    drain_bound: Seconds = Seconds(30.0)
    """Longest life of a draining replica."""
    revision: int = 0
    """The active one."""
    sleep: SleepPolicy | None = None
    """How its replicas sleep that are not granted any more; None: they end."""
    asleep: int | None = None
    """So many of them are worth it, whatever time passes; None: its declaration says how long each may."""


@dataclass(frozen=True, slots=True)
class ActualReplica:
    """A replica that exists. `drained`: its last request is done; `draining_since` while it drains. `sleeps`: the
    levels at which it can sleep; `dozing`: it is falling asleep."""

    replica: ReplicaName
    uid: str
    state: ReplicaState
    gpus: tuple[str, ...] = ()
    draining_since: Instant | None = None
    drained: bool = False
    revision: int = 0
    sleeps: frozenset[int] = frozenset()
    dozing: bool = False
    sleeping_since: Instant | None = None


@dataclass(frozen=True, slots=True)
class Actual:
    """What is of a model: its replicas, and until when starts of a revision must wait (back-off)."""

    replicas: tuple[ActualReplica, ...] = ()
    retry_at: Mapping[int, Instant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Start this replica now."""

    grant: ReplicaGrant


@dataclass(frozen=True, slots=True)
class Drain:
    """Say that it takes no new request."""

    replica: ReplicaName


@dataclass(frozen=True, slots=True)
class TakeBack:
    """It is wanted again: it is ready as before."""

    replica: ReplicaName


@dataclass(frozen=True, slots=True)
class Stop:
    """End it now; `why` is for people."""

    replica: ReplicaName
    why: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Its last request is done: it sleeps, at this level."""

    replica: ReplicaName
    level: int


@dataclass(frozen=True, slots=True)
class Wake:
    """It sleeps and is wanted again."""

    replica: ReplicaName


Command = Start | Drain | TakeBack | Stop | Sleep | Wake


@dataclass(frozen=True, slots=True)
class Plan:
    """Commands, in an order that may be followed at once, and when to look again though nothing happened."""

    commands: tuple[Command, ...]
    again_at: Instant | None = None


def plan(granted: Granted, actual: Actual, now: Instant) -> Plan:
    """What to do now. Ends before starts, so that a name or a card that is about to be free is on its way."""
    wanted = {grant.replica: grant for grant in granted.replicas}
    commands: list[Command] = []
    instants: list[Instant] = []
    beyond = _beyond(granted, actual, wanted)
    for replica in actual.replicas:
        grant = wanted.get(replica.replica)
        keep = grant is not None and not grant.drain and _same(replica, grant, granted.uid)
        if keep:
            commands += _keep(replica)
        else:
            ending = Stop(replica.replica, NOT_WORTH) if replica.replica in beyond else _end(replica, granted, now)
            commands += [ending] if isinstance(ending, (Drain, Stop, Sleep)) else []
            instants += [ending] if isinstance(ending, float) else []
    existing = {replica.replica for replica in actual.replicas}
    for grant in granted.replicas:
        if grant.drain or grant.replica in existing:
            continue  # one that still exists under that name must be gone first; its end wakes us
        retry_at = actual.retry_at.get(grant.revision)
        if retry_at is not None and retry_at > now:
            instants.append(retry_at)
        else:
            commands.append(Start(grant))
    return Plan(tuple(commands), min(instants, default=None))


def _beyond(granted: Granted, actual: Actual, wanted: Mapping[str, ReplicaGrant]) -> frozenset[str]:
    """Replicas that sleep, or would lie down now, beyond how many are worth it. Who has slept longest goes first."""
    if granted.asleep is None:
        return frozenset()
    resting = [
        one for one in actual.replicas
        if (one.state is ReplicaState.SLEEPING or (one.state is ReplicaState.DRAINING and (one.drained or one.dozing)))
        and _bed_of(one, granted) is not None
        and not ((grant := wanted.get(one.replica)) and not grant.drain and _same(one, grant, granted.uid))
    ]  # fmt: skip
    resting.sort(key=lambda one: (-(one.sleeping_since or inf), one.replica))
    return frozenset(one.replica for one in resting[granted.asleep :])


def _same(replica: ActualReplica, grant: ReplicaGrant, uid: str) -> bool:
    """Whether what runs is what is granted: of this declaration, and on these cards."""
    return replica.uid == uid and set(replica.gpus) == set(grant.placement.gpus)


def _keep(replica: ActualReplica) -> Iterator[Command]:
    if replica.state is ReplicaState.SLEEPING:
        yield Wake(replica.replica)
    elif replica.state is ReplicaState.DRAINING and not replica.dozing:  # it can be woken once it sleeps
        yield TakeBack(replica.replica)


def _end(replica: ActualReplica, granted: Granted, now: Instant) -> Drain | Stop | Sleep | Instant | None:
    """The next step of a replica that shall go: a command, or the instant at which to look again, or neither."""
    match replica.state:
        case ReplicaState.STARTING:
            return Stop(replica.replica, "no longer granted while it started")
        case ReplicaState.READY:
            return Drain(replica.replica)
        case ReplicaState.DRAINING:
            return None if replica.dozing else _drains_on(replica, granted, now)
        case ReplicaState.SLEEPING:
            return _sleeps_on(replica, granted, now)
        case ReplicaState.STOPPING | ReplicaState.FAILED:
            return None


def _drains_on(replica: ActualReplica, granted: Granted, now: Instant) -> Stop | Sleep | Instant:
    """How one goes on that takes no new request."""
    if replica.drained:
        return _bed_of(replica, granted) or Stop(replica.replica, "drained")
    bound = granted.drain_bound
    since = now if replica.draining_since is None else replica.draining_since
    if now - since >= bound:
        return Stop(replica.replica, f"not drained within {bound:g} s")
    return Instant(since + bound)


def _bed_of(replica: ActualReplica, granted: Granted) -> Sleep | None:
    """Its sleep, where it may and can."""
    policy = granted.sleep
    ours = replica.uid == granted.uid and replica.revision == granted.revision
    if policy is None or not ours or policy.level not in replica.sleeps:
        return None
    return Sleep(replica.replica, policy.level)


def _sleeps_on(replica: ActualReplica, granted: Granted, now: Instant) -> Stop | Instant | None:
    """How a sleeping replica that nobody wants goes on: until when, or its end. None: as long as it is worth it."""
    if granted.sleep is None or _bed_of(replica, granted) is None:
        return Stop(replica.replica, "its model, or this revision of it, does not sleep any more")
    since = now if replica.sleeping_since is None else replica.sleeping_since
    if granted.asleep is not None:
        return None
    if now - since >= granted.sleep.keep_alive:
        return Stop(replica.replica, f"it slept for {granted.sleep.keep_alive:g} s and nobody asked")
    return Instant(since + granted.sleep.keep_alive)
