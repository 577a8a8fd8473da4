"""`relume.phases`: what happens to replicas, for whoever waits and for dashboards."""

from __future__ import annotations

from dataclasses import field

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
    """The first request that was held for a cold start got its first byte: how long each part took.

    `phases`: seconds of this request's wait by phase, ``hold`` before any and ``answer`` after the replica was ready.
    `tier`: where the weights were (``memory``, ``disk``, ``remote``), empty when they do not go through the node's
    cache. `least_seconds`: what a start like this takes at least, None while a part was never measured. `verdict`:
    ``met``, ``missed``, or ``impossible`` when even the least breaks the promise; `missed_by`: the phase that cost
    most.
    """

    model: str
    request: str
    replica: str
    arrived_at: At
    first_byte_at: At
    sla_seconds: Amount
    held_requests: Count
    phases: dict[str, Amount] = field(default_factory=dict)
    tier: str = ""
    weights_bytes: Count | None = None
    least_seconds: Amount | None = None
    verdict: str = ""
    missed_by: str = ""
