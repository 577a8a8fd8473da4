"""Names: of models and replicas, of topics, of subjects and keys."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NewType

ModelName = NewType("ModelName", str)
"""A DNS label: lower case letters, digits and hyphens, 1 to 63."""

ReplicaName = NewType("ReplicaName", str)
"""``MODEL-rREVISION-INDEX``: deterministic, so that starting a replica twice is the same as once."""

GatewayName = NewType("GatewayName", str)

DNS_LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_DNS_LABEL: Final = re.compile(DNS_LABEL_PATTERN)


class Topic(StrEnum):
    """The topics of design §4. What is state, news or queue is in `TOPIC_KINDS`."""

    MODELS = "relume.models"
    DECISIONS = "relume.decisions"
    GRANTS = "relume.grants"
    REPLICAS = "relume.replicas"
    RECLAIMS = "relume.reclaims"
    CARDS = "relume.cards"
    CACHES = "relume.caches"
    GATEWAYS = "relume.gateways"
    REQUESTS = "relume.requests"
    METRICS = "relume.metrics"
    PHASES = "relume.phases"
    INFERENCE_REQUESTS = "relume.inference.requests"
    INFERENCE_RESULTS = "relume.inference.results"
    INFERENCE_PARKED = "relume.inference.parked"
    INFERENCE_DEAD_LETTERS = "relume.inference.dead-letters"
    DEAD_LETTERS = "relume.dead-letters"


class TopicKind(StrEnum):
    """How a topic is kept and read."""

    STATE = "state"
    """The newest value of each key stands; one writer a key."""
    NEWS = "news"
    """May be lost or repeated; correctness never hangs on it."""
    QUEUE = "queue"
    """Work: consumed by a group, committed after effect."""


TOPIC_KINDS: Final[dict[str, TopicKind]] = {
    Topic.MODELS: TopicKind.STATE,
    Topic.DECISIONS: TopicKind.STATE,
    Topic.GRANTS: TopicKind.STATE,
    Topic.REPLICAS: TopicKind.STATE,
    Topic.RECLAIMS: TopicKind.STATE,
    Topic.CARDS: TopicKind.STATE,
    Topic.CACHES: TopicKind.STATE,
    Topic.GATEWAYS: TopicKind.STATE,
    Topic.REQUESTS: TopicKind.NEWS,
    Topic.METRICS: TopicKind.NEWS,
    Topic.PHASES: TopicKind.NEWS,
    Topic.INFERENCE_REQUESTS: TopicKind.QUEUE,
    Topic.INFERENCE_RESULTS: TopicKind.QUEUE,
    Topic.INFERENCE_PARKED: TopicKind.QUEUE,
    Topic.INFERENCE_DEAD_LETTERS: TopicKind.QUEUE,
    Topic.DEAD_LETTERS: TopicKind.QUEUE,
}


def is_dns_label(text: str) -> bool:
    """Whether `text` may name a model."""
    return _DNS_LABEL.fullmatch(text) is not None


def pool_key(pool: str) -> str:
    """The key of a pool's states, ``pool/NAME``."""
    return f"pool/{pool}"


def model_key(model: str) -> str:
    """The key of a model's states, ``model/NAME``; also the start of its subjects."""
    return f"model/{model}"


def training_key(job: str) -> str:
    """The key of a training job's states, ``training/NAME``; also the start of its subjects."""
    return f"training/{job}"


def reclaim_key(attempt: str) -> str:
    """The key of an attempt to take cards back, ``reclaim/ID``."""
    return f"reclaim/{attempt}"


def node_key(node: str) -> str:
    """The key of a node's states, ``node/NAME``."""
    return f"node/{node}"


def member_name(job: str, index: int) -> str:
    """The name of a process of a training job's gang: ``JOB-INDEX``."""
    return f"{job}-{index}"


def replica_name(model: str, revision: int, index: int) -> ReplicaName:
    """The name of the replica with this index of a model's revision."""
    return ReplicaName(f"{model}-r{revision}-{index}")


def replica_subject(model: str, revision: int, replica: str) -> str:
    """``model/NAME/revision/N/replica/REPLICA``."""
    return f"model/{model}/revision/{revision}/replica/{replica}"
