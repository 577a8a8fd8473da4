"""`relume.models`: what users declared. Written by the admin API (on Kubernetes by the adapter); followed by all."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from annotated_types import Ge
from pydantic import JsonValue  # the type only: pydantic's name for "anything JSON can say"

from events.kinds import event, value
from events.names import Topic
from events.types.shared import At, Count


@value
class Override:
    """A person's number of replicas, which stands before the wish until it expires."""

    replicas: Count
    until: At
    by: str = ""


@event("relume.model.declared", Topic.MODELS)
class ModelDeclared:
    """The declaration of a model, whole. State of key ``model/NAME``.

    `uid` is new whenever a name is declared anew; everything that carries another uid is void. `revision` counts up
    when what a replica is made of changes (engine, weights, resources, slots). `spec` is the resolved declaration as
    written in YAML, camelCase, defaults filled in. `deleted`: held requests get 404, replicas drain.
    """

    model: str
    uid: str
    revision: Annotated[int, Ge(1)]
    generation: Annotated[int, Ge(1)]
    spec: dict[str, JsonValue]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    override: Override | None = None
    deleted: bool = False
    further: dict[str, JsonValue] = field(default_factory=dict)
    """Not on the wire: fields of a later release, kept for whoever writes this again (`events.further`)."""
