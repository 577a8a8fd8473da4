"""The JSON shapes of the admin API, as pydantic models: answers are made of them and the OpenAPI document shows them.

camelCase outside. Optional numbers are null when unknown, which is not zero. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from events.described import Described
from events.types.replicas import MAX_REPLICAS


class Shape(Described, BaseModel):
    """Base of all shapes: frozen, closed, camelCase."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True,
        allow_inf_nan=False, json_schema_serialization_defaults_required=True,
    )  # fmt: skip


class FieldProblem(Shape):
    """One field that is wrong."""

    path: str
    """Where: ``spec.scaling.maxReplicas``, or the name of a query parameter."""
    line: int | None = None
    """The line of the body, from 1, where it is known."""
    value: JsonValue = None
    """What it said."""
    rule: str = ""
    """What it breaks."""
    remedy: str = ""
    """What to write instead."""


class Problem(Shape):
    """Problem details (RFC 9457)."""

    type: str
    """``urn:relume:problem:NAME``."""
    title: str
    status: int
    detail: str
    remedy: str = ""
    """What to do about it."""
    problems: list[FieldProblem] = []
    """The fields that are wrong."""


class ModelState(StrEnum):
    """What a model is doing."""

    ZERO = "Zero"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    FAILED = "Failed"


class Metadata(Shape):
    """Who a model or a training job is."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str
    """New whenever the name is declared anew."""
    generation: int
    """Counts every change of the declaration."""
    revision: int
    """Counts changes of what a replica, or a member of a job, is made of."""


class Condition(Shape):
    """One thing that is true, false or unknown of a model, as Kubernetes writes it."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""


class PhaseTime(Shape):
    """One phase of a start. `seconds` is null while it goes on."""

    phase: str
    started_at: str
    seconds: float | None


class LastStart(Shape):
    """The newest start of a replica of the model, phase by phase."""

    replica: str
    ready_at: str | None
    seconds: float | None
    """First phase to ready; null while it goes on."""
    phases: list[PhaseTime]


class OverrideShape(Shape):
    """A person's number of replicas, which stands before the wish until it expires."""

    replicas: int
    until: str
    by: str = ""


class ObjectiveStatus(Shape):
    """A promise of `spec.slo` beside what was measured since this process began."""

    name: str
    """``timeToFirstToken.p95``, ``latency.p50``, ``availability``."""
    promised: float
    """The share of requests that was promised, 0 to 1."""
    seconds: float | None
    """Within how long; null for availability: answered without an error of ours."""
    requests: int
    """Requests that were counted."""
    measured: float | None
    """The share of them that kept it; null when there was none."""
    kept: bool | None
    """Whether that is as much as was promised."""


class NodeCallStatus(Shape):
    """More nodes are asked for, since some replicas have no room."""

    replicas: int
    """Replicas that are called for; 0 once the call was taken back."""
    waiting: int | None
    """Stand-ins that are seen to wait."""
    since: str
    until: str
    """When the call is taken back, unless a replica finds a place."""
    again_at: str | None
    """When the next call is, after one was taken back."""
    reason: str
    message: str


class ModelStatus(Shape):
    """What a model is doing, and why."""

    state: ModelState
    reason: str = ""
    """One word, where there is something to say."""
    message: str = ""
    """The same for people."""
    replicas: int
    """Replicas that exist and have not failed."""
    ready_replicas: int
    starting_replicas: int
    draining_replicas: int
    sleeping_replicas: int = 0
    held_requests: int | None
    """Requests in the hold queue."""
    running_requests: int | None
    """Requests that hold a lease."""
    wish: int | None
    """Replicas that the autoscaler wants."""
    granted: int | None
    """Replicas that the allocator allows."""
    shortage: int | None
    """Replicas wished for and not granted, for want of resources."""
    node_call: NodeCallStatus | None = None
    """What is asked of whoever adds nodes to the cluster."""
    failures: int = 0
    """Failed starts since the last success."""
    retry_at: str | None = None
    """When the next start is tried."""
    override: OverrideShape | None = None
    last_start: LastStart | None = None
    expected_start_seconds: float | None = None
    """How long the last start that became ready took; null before the first."""
    objectives: list[ObjectiveStatus] = []
    """What was promised, and whether it was kept."""
    conditions: list[Condition] = []


class ModelItem(Shape):
    """A declared model."""

    metadata: Metadata
    spec: dict[str, JsonValue]
    status: ModelStatus


class ModelList(Shape):
    """Declared models, by name."""

    items: list[ModelItem]


class Action(StrEnum):
    """What applying a document did (or would do)."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


class Applied(Shape):
    """What became of one document."""

    action: Action
    kind: str
    metadata: Metadata
    spec: dict[str, JsonValue]


class ApplyResult(Shape):
    """What became of all documents. `dryRun`: nothing was written."""

    dry_run: bool
    items: list[Applied]


class Deleted(Shape):
    """What is no longer declared: replicas drain, training jobs save and end."""

    metadata: Metadata


class ScaleBody(Shape):
    """A person's number of replicas for a while."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
    for_: Annotated[str, Field(alias="for", examples=["10m"])]
    """How long, such as 10m; at most 30 days."""


class ReplicaMetadata(Shape):
    """Which replica."""

    name: str


class ReplicaSpec(Shape):
    """What the replica is a copy of, and where it was put."""

    model: str
    revision: int
    node: str
    gpus: list[str]


class ReplicaItemStatus(Shape):
    """What the replica is doing."""

    state: str
    """Starting, Ready, Draining, Stopping or Failed."""
    phase: str | None
    """The part of its start that goes on."""
    reason: str
    message: str
    address: str
    slots: int
    pid: int | None
    created_at: str | None
    ready_at: str | None
    phases: list[PhaseTime]


class ReplicaItem(Shape):
    """One running copy of a model."""

    metadata: ReplicaMetadata
    spec: ReplicaSpec
    status: ReplicaItemStatus


class ReplicaList(Shape):
    """Replicas, by name."""

    items: list[ReplicaItem]


class ExplainResult(Shape):
    """Why the last decision was taken."""

    model: str
    sentences: list[str]
    facts: dict[str, JsonValue]


class DecisionItem(Shape):
    """One recorded decision."""

    id: str
    time: str
    model: str
    replicas: int
    reasons: list[str]
    cause: str | None
    snapshot: dict[str, JsonValue]
    policy: dict[str, JsonValue]
    memory: dict[str, JsonValue]


class DecisionList(Shape):
    """Recorded decisions, newest first."""

    items: list[DecisionItem]


class DeadLetterItem(Shape):
    """An event that could not be read."""

    topic: str
    """Where it stood, or the door at which it was refused."""
    partition: int | None
    offset: int | None
    reason: str
    type: str
    source: str
    raw: str
    raw_bytes: int
    at: str


class DeadLetterList(Shape):
    """Events that could not be read, newest first."""

    items: list[DeadLetterItem]


class Accepted(Shape):
    """Events that now stand in the log."""

    appended: int
    ids: list[str]


class TopRow(Shape):
    """One model's load."""

    model: str
    state: ModelState
    ready_replicas: int
    replicas: int
    wish: int | None
    held_requests: int | None
    running_requests: int | None
    arrivals_per_second: float | None
    """Over the last window, null before the first."""
    tokens_out_per_second: float | None
    first_byte_p50_seconds: float | None
    first_byte_p95_seconds: float | None


class NodeRow(Shape):
    """What one node has, and how much of it replicas hold."""

    node: str
    cpu: float
    cpu_granted: float
    memory_bytes: int
    memory_granted_bytes: int
    gpus: float
    """Turns and MIG instances added up as parts of a GPU."""
    gpus_granted: float


class Top(Shape):
    """The load of everything, now."""

    at: str
    models: list[TopRow]
    nodes: list[NodeRow]


class Health(Shape):
    """The process lives."""

    status: str
    version: str


class ReadinessShape(Shape):
    """Whether the process can do its work."""

    ready: bool
    missing: list[str]
    """What is not ready, a sentence each."""
    troubles: list[str] = []
    """What does not work though requests are taken: warm models serve, so it stays ready."""
