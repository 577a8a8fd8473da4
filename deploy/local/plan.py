"""What to do so that a model's replicas become what was granted. Pure: the whole view in, commands out.

Nothing here remembers: the same view gives the same commands, whichever event led here, and commands that were done
change the view so that they are not given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from events.names import ReplicaName
from events.types.grants import ReplicaGrant
from events.types.replicas import ReplicaState
from events.units import Instant, Seconds


@dataclass(frozen=True, slots=True)
class Granted:
    """The newest valid grant of a model and what its declaration says about ending replicas."""

    uid: str
    replicas: tuple[ReplicaGrant, ...] = ()
    drain_bound: Seconds = Seconds(30.0)
    """Longest life of a draining replica."""


@dataclass(frozen=True, slots=True)
class ActualReplica:
    """A replica that exists. `drained`: its last request is done; `draining_since` while it drains."""

    replica: ReplicaName
    uid: str
    state: ReplicaState
    gpus: tuple[str, ...] = ()
    draining_since: Instant | None = None
    drained: bool = False


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


Command = Start | Drain | TakeBack | Stop


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
    for replica in actual.replicas:
        grant = wanted.get(replica.replica)
        keep = grant is not None and not grant.drain and _same(replica, grant, granted.uid)
        if keep:
            commands += _keep(replica)
        else:
            ending = _end(replica, granted.drain_bound, now)
            commands += [ending] if isinstance(ending, (Drain, Stop)) else []
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


def _same(replica: ActualReplica, grant: ReplicaGrant, uid: str) -> bool:
    """Whether what runs is what is granted: of this declaration, and on these cards."""
    return replica.uid == uid and set(replica.gpus) == set(grant.placement.gpus)


def _keep(replica: ActualReplica) -> Iterator[Command]:
    if replica.state is ReplicaState.DRAINING:
        yield TakeBack(replica.replica)


def _end(replica: ActualReplica, bound: Seconds, now: Instant) -> Drain | Stop | Instant | None:
    """The next step of a replica that shall go: a command, or the instant at which to look again, or neither."""
    match replica.state:
        case ReplicaState.STARTING:
            return Stop(replica.replica, "no longer granted while it started")
        case ReplicaState.READY:
            return Drain(replica.replica)
        case ReplicaState.DRAINING:
            if replica.drained:
                return Stop(replica.replica, "drained")
            since = now if replica.draining_since is None else replica.draining_since
            if now - since >= bound:
                return Stop(replica.replica, f"not drained within {bound:g} s")
            return Instant(since + bound)
        case ReplicaState.STOPPING | ReplicaState.FAILED:
            return None
