"""What of a model's declaration concerns the allocator: read from the spec as it travels in the event."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.spec import Spec
from events.types.models import ModelDeclared
from preemption.core.view import Declared
from preemption.spec import Priority, ResourcesSpec


class _Scaling(BaseModel):
    """The one bound of the autoscaler's slice that a grant must keep too."""

    model_config = ConfigDict(extra="ignore")

    max_replicas: int = Field(1, alias="maxReplicas")


class _Part(Spec):
    """The part of a spec that is read here; the other slices are their owners' business."""

    model_config = ConfigDict(extra="ignore")

    priority: Priority = 100
    resources: ResourcesSpec = ResourcesSpec()
    scaling: _Scaling = _Scaling.model_construct(max_replicas=1)


def read_declaration(event: ModelDeclared) -> Declared:
    """The declaration in plain numbers. ValueError when the spec cannot be read (another release wrote it)."""
    part = _read(event.spec)
    return Declared(
        model=event.model,
        uid=event.uid,
        revision=event.revision,
        priority=part.priority,
        resources=part.resources.resolve(),
        max_replicas=part.scaling.max_replicas,
        deleted=event.deleted,
        override=event.override,
    )


def _read(spec: Mapping[str, object]) -> _Part:
    try:
        return _Part.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"spec.{where} cannot be read: {first['msg']}") from None
