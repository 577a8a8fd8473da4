"""Pools of GPUs as users declare them, and what people say of single cards. Written by the admin ports."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from annotated_types import Ge
from pydantic import JsonValue  # the type only: pydantic's name for "anything JSON can say"

from events.kinds import event
from events.names import Topic
from events.types.shared import At


@event("relume.pool.declared", Topic.MODELS)
class PoolDeclared:
    """The settings of a pool of GPUs, whole. State of key ``pool/NAME``.

    `uid` is new whenever a name is declared anew; `revision` counts up when the settings change. `deleted`: the
    defaults hold again. Whoever leads the pool goes by the newest one from its next decision on.
    """

    pool: str
    uid: str
    revision: Annotated[int, Ge(1)]
    generation: Annotated[int, Ge(1)]
    spec: dict[str, JsonValue]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    deleted: bool = False
    further: dict[str, JsonValue] = field(default_factory=dict)
    """Not on the wire: fields of a later release, kept for whoever writes this again (`events.further`)."""


@event("relume.card.marked", Topic.MODELS)
class CardMarked:
    """A person's word about one card. State of key ``node/NODE/card/CARD``.

    `cordoned`: nothing new is placed on it; what is there stays. Not `cordoned`: it may be used, and whatever relume
    still waited to see gone from it, of runs that had ended by `at`, counts as gone: a person has looked. `reason`: in
    the person's words.
    """

    node: str
    card: str
    cordoned: bool
    at: At
    reason: str = ""
