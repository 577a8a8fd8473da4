"""Bounds beside what nodes have, told by the cluster adapter: what a namespace may take. Part of `relume.cards`."""

from __future__ import annotations

from enum import StrEnum

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Amount


class LimitKind(StrEnum):
    """What a limit counts."""

    GPUS = "gpus"
    """Whole GPUs, or shares of one: each takes one."""
    MIG = "mig"
    """MIG instances of a profile."""
    CPU = "cpu"
    """Cores."""
    MEMORY = "memory"
    """Bytes."""
    PODS = "pods"


@value
class Limit:
    """What replicas and members of training jobs may take of one resource: `most` all together, or with `each` every
    one of them; `least`: not less than `most` each.

    `source` and `resource` are what people look for: the object's kind and name, and the resource in its words.
    """

    source: str
    resource: str
    kind: LimitKind
    most: Amount
    profile: str = ""
    each: bool = False
    least: bool = False


@event("relume.limits.observed", Topic.CARDS)
class LimitsObserved:
    """All limits of a namespace, less what others take of them. State of key ``limits/NAME``."""

    space: str
    limits: tuple[Limit, ...] = ()
