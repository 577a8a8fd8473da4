"""One example of each event type: for the reference pages, and to start from when writing one's own.

The story: model `llama` is declared, a request arrives while it is at zero, one replica is wished, granted and started.
"""

from __future__ import annotations

from typing import Any, Final

from events.envelope import AnyEnvelope, Envelope
from events.keys import default_key, default_subject
from events.types.accounts import KeptAt, OpenRun, TrainingAccounted
from events.types.caches import (
    CachedWeights,
    CacheObserved,
    FetchTimes,
    ModelWarmth,
    WeightsEvicted,
    WeightsFailed,
    WeightsFetched,
    WeightsFetching,
    WeightsFetchStarted,
)
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.gpus import GpusObserved, NodeGpu
from events.types.grants import GrantDecided, LeadershipTaken, Placement, ReplicaGrant, Shortage
from events.types.inference import (
    FailureReason,
    InferenceChunk,
    InferenceCompleted,
    InferenceFailed,
    InferenceParked,
    InferenceRequested,
    Origin,
)
from events.types.letters import EventRejected
from events.types.limits import Limit, LimitKind, LimitsObserved
from events.types.metrics import BacklogMeasured, LagMeasured, QueryMeasured, ReplicaMetrics, SignalMeasured
from events.types.models import ModelDeclared, Override
from events.types.phases import ColdStartFinished, ReplicaDrained, ReplicaPhaseChanged, ReplicaSuspected
from events.types.pools import CardMarked, PoolDeclared
from events.types.reclaims import ReclaimChanged, ReclaimLedger, ReclaimStep, ReclaimVerdict
from events.types.replicas import Card, CardsObserved, Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import ActivationRequested, Levels, RequestArrived, RequestFinished, RequestWindow
from events.types.shared import Resources, Sketch
from events.types.training import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointStatus,
    Ending,
    MemberGrant,
    MemberStatus,
    NoticeGiven,
    NoticeStatus,
    RunState,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from events.units import Instant

AT: Final = 1_793_127_222.0  # 2026-10-27T18:53:42Z
_UID: Final = "5f0c2a1e9b7d4c63"
_REPLICA: Final = "llama-r3-0"
_NEEDS: Final = Resources(gpus=1, cpu=2.0, memory_bytes=8 << 30)

_CARD: Final = Resources(gpus=1, cpu=4.0, memory_bytes=16 << 30)
_CHECKPOINT: Final = CheckpointStatus(
    step=4200, at=AT + 9.0, path="/ckpt/step-4200", manifest="sha256:0b5c", size=3 << 30, seconds=6.5, verified=True
)

_ORIGIN: Final = Origin(id="order-4711", source="//acme.example/shop", topic="relume.inference.requests", offset=81)
_REQUESTED: Final = InferenceRequested(
    body={"model": "llama", "messages": [{"role": "user", "content": "hello"}]},
    deadline="2026-10-27T20:00:00Z",
    idempotency_key="order-4711",
)

EXAMPLES: Final[tuple[Any, ...]] = (
    ModelDeclared(
        model="llama",
        uid=_UID,
        revision=3,
        generation=4,
        spec={
            "engine": {"type": "llamacpp", "options": {}},
            "aliases": ["gpt-4o"],
            "scaling": {"minReplicas": 0, "maxReplicas": 4},
        },
        override=Override(replicas=2, until=AT + 600, by="ada"),
    ),
    OwnershipTaken(partition=0, owner="autoscaler-0"),
    WishDecided(
        model="llama",
        uid=_UID,
        revision=3,
        replicas=1,
        priority=100,
        marginal_gain=1.5,
        deadline=AT + 3.0,
        reasons=("edge",),
        snapshot={"running": 0, "waiting": 1},
        policy={"target": 4},
        memory={"lastBusyAt": AT},
    ),
    LeadershipTaken(pool="default", leader="allocator-0"),
    GrantDecided(
        model="llama",
        uid=_UID,
        revision=3,
        wished=2,
        replicas=(
            ReplicaGrant(
                replica=_REPLICA, revision=3, placement=Placement(node="node-1", gpus=("gpu-0",)), resources=_NEEDS
            ),
        ),
        shortage=Shortage(replicas=1, resources=_NEEDS, message="1 of 1 GPUs in use"),
        reasons=("no_gpu",),
    ),
    ReplicasObserved(
        model="llama",
        uid=_UID,
        replicas=(
            ReplicaStatus(
                replica=_REPLICA,
                uid=_UID,
                revision=3,
                state=ReplicaState.READY,
                phases=(
                    PhaseSpan(phase=Phase.SPAWN, started_at=AT, ended_at=AT + 0.4),
                    PhaseSpan(phase=Phase.LOAD, started_at=AT + 0.4, ended_at=AT + 1.9),
                ),
                address="127.0.0.1:41001",
                slots=4,
                node="node-1",
                gpus=("gpu-0",),
                resources=_NEEDS,
                pid=4711,
                created_at=AT,
                ready_at=AT + 2.0,
            ),
        ),
        grant_epoch=17,
    ),
    LimitsObserved(
        space="models",
        limits=(Limit(source="ResourceQuota gpus", resource="requests.nvidia.com/gpu", kind=LimitKind.GPUS, most=4.0),),
    ),
    GpusObserved(
        node="node-1",
        known=True,
        gpus=(
            NodeGpu(
                id="GPU-5a1c",
                product="NVIDIA H200",
                memory_bytes=140 << 30,
                used_bytes=4 << 20,
                empty=True,
                pods=("models/chat-r1-0-3f21aa",),
            ),
        ),
    ),
    CardsObserved(node="node-1", cpu=8.0, memory_bytes=64 << 30, cards=(Card(id="gpu-0", memory_bytes=80 << 30),)),
    GatewayBeat(gateway="gateway-0", boot="c0ffee", peer_address="10.0.0.7:8082"),
    RequestWindow(
        model="llama",
        uid=_UID,
        revision=3,
        gateway="gateway-0",
        started_at=AT,
        ended_at=AT + 1.0,
        running_seconds=0.75,
        waiting_seconds=2.5,
        now=Levels(running=1, waiting=3),
        peak=Levels(running=1, waiting=4),
        arrivals=4,
        starts=1,
        held=Sketch(buckets=((12, 1),), count=1, sum=3.2),
        oldest_waiting_since=AT + 0.1,
        earliest_deadline=AT + 300.0,
        edge=True,
    ),
    ActivationRequested(model="llama", replicas=1, until=AT + 900),
    RequestArrived(model="llama", request="req-81"),
    RequestFinished(model="llama", request="req-81"),
    ReplicaMetrics(model="llama", replica=_REPLICA, revision=3, running=1, waiting=0, kv_cache_use=0.25),
    BacklogMeasured(model="llama", source="orders", items=120, drain_rate=4.5, oldest_at=AT - 30),
    SignalMeasured(model="llama", name="queue_seconds", value=12.0, target=4.0, valid_for=30.0),
    QueryMeasured(model="llama", name="waiting", value=12.0, delay=7.5, series=1, valid_for=45.0),
    LagMeasured(
        model="llama", name="orders", lag=420, standing=450, partitions=12, with_lag=9, produced=35.0, consumed=28.5
    ),
    ReplicaPhaseChanged(
        model="llama", replica=_REPLICA, revision=3, state=ReplicaState.STARTING, phase=Phase.LOAD, progress=0.4, at=AT
    ),
    ReplicaDrained(model="llama", replica=_REPLICA),
    ReplicaSuspected(model="llama", replica=_REPLICA, reason="connection refused"),
    ColdStartFinished(
        model="llama",
        request="req-81",
        replica=_REPLICA,
        arrived_at=AT,
        first_byte_at=AT + 2.3,
        sla_seconds=3.0,
        held_requests=4,
    ),
    _REQUESTED,
    InferenceParked(
        model="llama",
        origin=_ORIGIN,
        requested=_REQUESTED,
        since=AT,
        not_before=AT + 8,
        why="waited 5s for a slot",
    ),
    InferenceCompleted(
        model="llama",
        origin=_ORIGIN,
        status=200,
        body={"object": "chat.completion", "choices": []},
        idempotency_key="order-4711",
    ),
    InferenceChunk(model="llama", origin=_ORIGIN, attempt=1, index=0, data='{"choices":[]}'),
    InferenceFailed(
        model="llama",
        origin=_ORIGIN,
        reason=FailureReason.DEADLINE,
        message="not answered before its deadline: no replica was ready",
        failed_at=AT + 3978,
        requested=_REQUESTED,
        idempotency_key="order-4711",
    ),
    TrainingDeclared(
        job="tune",
        uid=_UID,
        revision=1,
        generation=1,
        spec={"command": ["python", "train.py"], "resources": {"gpus": 1}, "checkpoint": {"saveTimeout": "2m"}},
    ),
    TrainingGranted(
        job="tune",
        uid=_UID,
        revision=1,
        run=2,
        members=(MemberGrant(member="tune-0", placement=Placement(node="node-1", gpus=("gpu-0",)), resources=_CARD),),
        notice=NoticeGiven(id="tune-2-llama-1", deadline=AT + 120.0, reason="llama needs 1 GPU"),
        reasons=("yields",),
        message="model llama, of higher priority, needs its card",
    ),
    TrainingObserved(
        job="tune",
        uid=_UID,
        revision=1,
        run=2,
        state=RunState.ENDED,
        members=(MemberStatus(member="tune-0", node="node-1", gpus=("gpu-0",), resources=_CARD, exit_code=75),),
        started_at=AT - 3600.0,
        ended_at=AT + 9.4,
        empty_at=AT + 9.5,
        ending=Ending.SAVED,
        reports=True,
        step=4200,
        step_at=AT + 2.0,
        resumed_step=1100,
        checkpoint=_CHECKPOINT,
        notice=NoticeStatus(id="tune-2-llama-1", heard_at=AT + 0.2, eta=7.0, progress=3 << 30, saved_step=4200),
        grant_epoch=17,
    ),
    CheckpointCommitted(job="tune", run=2, checkpoint=_CHECKPOINT, notice="tune-2-llama-1"),
    CheckpointFailed(job="tune", run=2, step=4200, message="rank 0: OSError: No space left on device"),
    ReclaimChanged(
        id="tune-2-llama-1",
        job="tune",
        job_uid=_UID,
        run=2,
        members=("tune-0",),
        shortage="llama",
        shortage_uid=_UID,
        shortage_since=AT,
        cards=("node-1/gpu-0",),
        state="claimed",
        since=AT + 9.5,
        due=AT + 120.0,
        deadline=AT + 69.5,
        manifest="sha256:0b5c",
        step=4200,
        cost=61.0,
        history=(ReclaimStep(at=AT + 9.5, happened="cards_empty", state="claimed"),),
        verdicts=(ReclaimVerdict(job="tune", why="taken", numbers={"cost": 61.0}),),
        ledger=ReclaimLedger(
            gpus=1.0, lost={"save": 6.5, "stop": 0.4}, stages={"plan": 0.01, "ack": 0.2, "save": 8.8}, steps_lost=0
        ),
    ),
    PoolDeclared(pool="default", uid=_UID, revision=2, generation=3, spec={"reclaim": {"budgetPerHour": 30}}),
    CardMarked(node="node-1", card="gpu-0", cordoned=True, at=AT, reason="ECC errors"),
    TrainingAccounted(
        job="tune",
        uid=_UID,
        run=2,
        parts={"kept": 5_400_000_000, "restore": 31_000_000, "since_commit": 12_500_000, "drain": 900_000},
        open=OpenRun(since=1_700_000_000_000, milli=1000, trained=1_699_999_990_000, reports=True),
        commits=(KeptAt(step=4200, kept=5_400_000_000),),
    ),
    CacheObserved(
        node="node-1",
        used_bytes=9 << 30,
        capacity_bytes=400 << 30,
        contents=(
            CachedWeights(
                source="https://models.example/llama.gguf",
                digest="sha256:" + "9f" * 32,
                bytes=5 << 30,
                models=("llama",),
                in_use=True,
                fetched_at=AT,
            ),
        ),
        fetching=(
            WeightsFetching(
                source="https://models.example/qwen.gguf", bytes=4 << 30, done=1 << 30, rate=8e8, why="prewarm"
            ),
        ),
        models=(ModelWarmth(model="llama", tier="memory", bytes=5 << 30, seconds=1.4),),
        network=9e8,
        disk=1.6e9,
        digest=1.2e9,
    ),
    WeightsFetchStarted(node="node-1", source="https://models.example/llama.gguf", why="demand", models=("llama",)),
    WeightsFetched(
        node="node-1",
        source="https://models.example/llama.gguf",
        digest="sha256:" + "9f" * 32,
        bytes=5 << 30,
        transferred=5 << 30,
        seconds=6.2,
        models=("llama",),
        times=FetchTimes(prepare=0.1, network=6.0, disk=3.4, digest=4.9, publish=0.01),
    ),
    WeightsFailed(
        node="node-1",
        source="https://models.example/llama.gguf",
        reason="NoSpace",
        message="5Gi are needed and 1Gi of 4Gi can be freed: the rest is in use",
        models=("llama",),
    ),
    WeightsEvicted(
        node="node-1",
        source="https://models.example/old.gguf",
        digest="sha256:" + "5e" * 32,
        bytes=2 << 30,
        why="room",
    ),
    EventRejected(
        topic="relume.requests",
        reason="data.replicas: Input should be a valid integer, got 'two'",
        type="relume.activation.requested.v1",
        source="orders/worker-3",
        raw='{"specversion":"1.0",…',
        raw_bytes=312,
        at=AT,
    ),
)
"""Data of each event type, once."""


def example_envelope(data: Any) -> AnyEnvelope:
    """`data` in an envelope with every optional attribute."""
    key = default_key(data) or "key"
    return Envelope(
        id="9b1d6e5f3a20c847-2a",
        source="relume/example",
        subject=default_subject(data, key),
        key=key,
        time=Instant(AT),
        data=data,
        sequence=42,
        cause="9b1d6e5f3a20c847-29",
        epoch=17,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
