"""`relume.replicas` and `relume.cards`: what is. Written by the cluster adapter; followed by gateways, autoscaler,
allocator."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Amount, At, Count, Resources

FAILED_STARTS: Final = 3
"""After so many failed starts in a row requests that wait are refused, the model is said to have failed, and a new
revision is rolled out no further. Chosen: one failure may be chance, two a slow disk."""


MAX_REPLICAS: Final = 500
"""Most replicas of one model. All replicas of a model are one event, which may have 1 MiB: about 700 bytes each
(measured), and twice as many stand in it while a revision is rolled out."""


class ReplicaState(StrEnum):
    """The life of a replica; the table of its transitions is `runtime.core.lifecycle`."""

    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    SLEEPING = "Sleeping"
    """Its process lives and serves nothing: it holds host memory, and no GPU."""
    STOPPING = "Stopping"
    FAILED = "Failed"


class Phase(StrEnum):
    """The parts of a cold start, in order. `HOLD` and `PLACE` come before a replica exists."""

    HOLD = "hold"
    """The request's arrival to the decision to start: wish and grant."""
    PLACE = "place"
    """Waiting for GPUs, cores or memory."""
    FETCH = "fetch"
    """Weights come to the node."""
    READ = "read"
    """Weights that are on the node's disk and not in memory are read there, ahead of the engine: beside `SPAWN` and
    `LOAD`, so that those tell what is left after it."""
    SPAWN = "spawn"
    """Start command issued to the engine's process running and listening. An engine that can wait for its weights is
    spawned while they come: then a first span of this phase lies within `FETCH`, and a second one after it."""
    LOAD = "load"
    """The engine loads the weights: listening to healthy."""
    WAKE = "wake"
    """An engine that slept wakes, instead of fetch, spawn and load."""
    WARMUP = "warmup"
    """Healthy to the first token of a one-token request: ready."""


@value
class PhaseSpan:
    """When a phase began and ended (None: it goes on). Spans may overlap, and stand in the order in which they
    began."""

    phase: Phase
    started_at: At
    ended_at: At | None = None


@value
class StartWeights:
    """The weights of a replica whose start went through the node's cache.

    `tier`: where they were when the start began: ``memory``, ``disk`` or ``remote``; ``sleep``: in an engine that
    slept. While they are fetched, `done` of `bytes` were verified at `at`, at `rate` bytes a second. `least_seconds`:
    what bringing them takes at least, by what this node has measured.
    """

    bytes: Count
    tier: str
    done: Count = 0
    rate: Amount | None = None
    at: At
    least_seconds: Amount | None = None


@value
class ReplicaStatus:
    """One replica as the cluster adapter sees it. Times are instants; `address` is ``HOST:PORT`` once it listens.

    `cancels` tells what a closed connection does to a request inside the engine (see `runtime.ports.Cancels`).
    `busy_path` is a path of the replica that tells how many requests it runs, or empty. One that sleeps, or ends
    without having been woken, does so at `sleep_level` (0: it does not); then it holds the memory that `resources` say,
    which its node has set aside, and no GPU. `ordinal`: where it stands among those of an object that ends its last one
    first, as a StatefulSet does; None: who goes may be chosen.
    """

    replica: str
    uid: str
    revision: Count
    state: ReplicaState
    phase: Phase | None = None
    phases: tuple[PhaseSpan, ...] = ()
    address: str = ""
    slots: Count = 0
    node: str = ""
    gpus: tuple[str, ...] = ()
    resources: Resources = Resources()
    pid: Count | None = None
    created_at: At | None = None
    ready_at: At | None = None
    cancels: str = "streams"
    busy_path: str = ""
    reason: str = ""
    message: str = ""
    weights: StartWeights | None = None
    sleep_level: Count = 0
    ordinal: Count | None = None


@value
class StandIns:
    """What came of a model's call for nodes: so many stand-ins are `waiting`.

    `cancelled_at`: when somebody last took one away. `paused_until`: the call was taken back, and is made again then;
    `message` says why, or what is heard of nodes that come.
    """

    waiting: Count = 0
    cancelled_at: At | None = None
    paused_until: At | None = None
    message: str = ""


@event("relume.replicas.observed", Topic.REPLICAS)
class ReplicasObserved:
    """All replicas of a model, whole. State of key ``model/NAME``. `stand_ins`: of a model that calls for nodes.

    `failures` counts failed starts since the last success; while it is above zero, `retry_at` is when the adapter tries
    again, `reason` and `message` say what went wrong last (`log_tail`: the engine's last lines).
    """

    model: str
    uid: str
    replicas: tuple[ReplicaStatus, ...]
    failures: Count = 0
    reason: str = ""
    message: str = ""
    log_tail: tuple[str, ...] = ()
    retry_at: At | None = None
    grant_epoch: Count = 0
    stand_ins: StandIns | None = None


@value
class Card:
    """One GPU of a node, or one MIG instance of one: then `profile` is its profile, and `id` and `memory_bytes` are the
    instance's (a card that is split is not listed itself). Or one turn of a time-sliced card: then `turns` is how many
    its card has, `id` the turn's (``CARD::NUMBER``), and `memory_bytes` its whole card's. `virtual`: declared with
    --gpus, for machines without one. Cards of a node with the same `link` all reach each other over NVLink; `numa` is
    the NUMA node that a card hangs on. None: none that is known."""

    id: str
    product: str = ""
    memory_bytes: Count = 0
    virtual: bool = False
    profile: str = ""
    link: Count | None = None
    numa: Count | None = None
    turns: Count = 0


CLOSES: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep pods away; ``PreferNoSchedule`` is a wish of the node's."""


@value
class Taint:
    """What keeps pods away that do not bear it. `effect`: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@value
class OwnRoom:
    """What a pod of an enrolled object has that is no replica: room for one of its model, and for nobody else. Its
    cards are among those of its node. `ordinal` and `since` order those of one model."""

    model: str
    pod: str
    gpus: tuple[str, ...] = ()
    resources: Resources = Resources()
    ordinal: Count = 0
    since: At = 0.0


@event("relume.cards.observed", Topic.CARDS)
class CardsObserved:
    """What a node has for replicas. State of key ``node/NAME``. `labels` None: it has none that are known. `rooms`:
    what of it is for replicas of one model alone."""

    node: str
    cpu: Amount
    memory_bytes: Count
    cards: tuple[Card, ...] = ()
    labels: dict[str, str] | None = None
    taints: tuple[Taint, ...] = ()
    rooms: tuple[OwnRoom, ...] = ()
