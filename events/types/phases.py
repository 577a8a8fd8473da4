"""`relume.phases`: what happens to replicas, for whoever waits and for dashboards."""

from __future__ import annotations

from events.kinds import event
from events.names import Topic
from events.types.replicas import Phase, ReplicaState
from events.types.shared import Amount, At, Count


@event("relume.replica.phase_changed", Topic.PHASES)
class ReplicaPhaseChanged:
    """A replica went on: into a state and, while it starts, a phase. `progress` is 0..1 where it is known."""

    model: str
    replica: str
    revision: Count
    state: ReplicaState
    phase: Phase | None = None
    progress: Amount | None = None
    at: At
    message: str = ""


@event("relume.replica.drained", Topic.PHASES)
class ReplicaDrained:
    """The slot authority has no lease left on a draining replica: it may stop."""

    model: str
    replica: str


@event("relume.replica.suspected", Topic.PHASES)
class ReplicaSuspected:
    """A gateway distrusts a replica (connection refused, broken answers, a request past its deadline). It should be
    probed."""

    model: str
    replica: str
    reason: str


@event("relume.coldstart.finished", Topic.PHASES)
class ColdStartFinished:
    """The first request that was held for a cold start got its first byte: how long each part took."""

    model: str
    request: str
    replica: str
    arrived_at: At
    first_byte_at: At
    sla_seconds: Amount
    held_requests: Count
