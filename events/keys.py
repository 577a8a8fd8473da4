"""The key and the subject that an event has when its writer names none."""

from __future__ import annotations

from events.names import model_key, node_key, pool_key, reclaim_key, replica_subject, training_key
from events.types.caches import CacheObserved, WeightsEvicted, WeightsFailed, WeightsFetched, WeightsFetchStarted
from events.types.decisions import OwnershipTaken
from events.types.gateways import GatewayBeat
from events.types.gpus import GpusObserved
from events.types.grants import LeadershipTaken
from events.types.inference import (
    InferenceChunk,
    InferenceCompleted,
    InferenceFailed,
    InferenceParked,
    InferenceRequested,
    model_of,
)
from events.types.letters import EventRejected
from events.types.limits import LimitsObserved
from events.types.pools import CardMarked, PoolDeclared
from events.types.reclaims import ReclaimChanged
from events.types.replicas import CardsObserved


def default_key(data: object) -> str | None:
    """The key that states and news of this data stand under; None when the data does not say."""
    match data:
        case GatewayBeat():
            return f"gateway/{data.gateway}"
        case (
            CardsObserved() | CacheObserved() | WeightsFetchStarted() | WeightsFetched() | WeightsFailed()
            | WeightsEvicted()
        ):  # fmt: skip
            return node_key(data.node)
    return _named_key(data) or _model_key(data) or _training_key(data)


def _named_key(data: object) -> str | None:
    """Of what is about a partition, a pool, a card, a topic."""
    match data:
        case OwnershipTaken():
            return f"ownership/{data.partition}"
        case LeadershipTaken() | PoolDeclared():
            return pool_key(data.pool)
        case LimitsObserved() | GpusObserved():
            return f"limits/{data.space}" if isinstance(data, LimitsObserved) else f"gpus/{data.node}"
        case CardMarked():
            return f"{node_key(data.node)}/card/{data.card}"
        case EventRejected():
            return f"topic/{data.topic}"
    return None


def _model_key(data: object) -> str | None:
    """Of what is about a model. Asynchronous inference goes by the name that the request gave, maybe an alias."""
    if isinstance(data, InferenceRequested):
        return model_of(data)
    model = getattr(data, "model", None)
    if not isinstance(model, str):
        return None
    of_inference = isinstance(data, InferenceCompleted | InferenceChunk | InferenceParked | InferenceFailed)
    return model if of_inference else model_key(model)


def _training_key(data: object) -> str | None:
    """Of what is about a training job, and of attempts to take its cards."""
    if isinstance(data, ReclaimChanged):
        return reclaim_key(data.id)
    job = getattr(data, "job", None)
    return training_key(job) if isinstance(job, str) else None


def default_subject(data: object, key: str) -> str:
    """``model/NAME/revision/N/replica/REPLICA`` where the data names a replica, else the key."""
    replica = getattr(data, "replica", None)
    if not replica or not isinstance(replica, str):
        return key
    model, revision = getattr(data, "model", None), getattr(data, "revision", None)
    if isinstance(model, str):
        if isinstance(revision, int):
            return replica_subject(model, revision, replica)
        return f"{model_key(model)}/replica/{replica}"
    return key
