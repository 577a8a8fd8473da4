"""What of a model's declaration concerns the allocator: read from the spec as it travels in the event."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.spec import Duration, Spec
from events.types.models import ModelDeclared
from events.units import Seconds
from preemption.core.terms import ANYWHERE, Terms, Toleration
from preemption.core.view import Declared, Workers
from preemption.spec import Priority, ResourcesSpec


class _Scaling(BaseModel):
    """The one bound of the autoscaler's slice that a grant must keep too."""

    model_config = ConfigDict(extra="ignore")

    max_replicas: int = Field(1, alias="maxReplicas")


class _Toleration(BaseModel):
    """A taint that the pods bear."""

    model_config = ConfigDict(extra="ignore")

    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: str | None = None


class _Pod(BaseModel):
    """Which nodes the pods of a model may have."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    node_selector: dict[str, str] = Field(default_factory=dict, alias="nodeSelector")
    tolerations: tuple[_Toleration, ...] = ()

    def resolve(self) -> Terms:
        """As the placement looks at them."""
        borne = (
            Toleration(key=one.key or "", operator=one.operator, value=one.value or "", effect=one.effect or "")
            for one in self.tolerations
        )
        return Terms(tuple(sorted(self.node_selector.items())), tuple(borne))


class _Percentiles(BaseModel):
    """Most seconds that the given share of requests may take."""

    model_config = ConfigDict(extra="ignore")

    p50: Duration | None = None
    p95: Duration | None = None
    p99: Duration | None = None


class _Slo(BaseModel):
    """What the owner promises of the first token."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    first_token: _Percentiles = Field(default_factory=_Percentiles, alias="timeToFirstToken")

    def resolve(self) -> Seconds | None:
        """The promise for most requests: of the highest share that is promised anything."""
        told = self.first_token
        promised = [one for one in (told.p99, told.p95, told.p50) if one is not None]
        return Seconds(promised[0]) if promised else None


class _Workers(BaseModel):
    """Pods that an enrolled object makes for a replica beside the one that serves."""

    model_config = ConfigDict(extra="ignore")

    count: int
    resources: ResourcesSpec = ResourcesSpec()

    def resolve(self) -> Workers:
        """In plain numbers."""
        return Workers(self.count, self.resources.resolve())


class _Target(BaseModel):
    """An enrolled object."""

    model_config = ConfigDict(extra="ignore")

    workers: _Workers | None = None


class _Part(Spec):
    """The part of a spec that is read here; the other slices are their owners' business."""

    model_config = ConfigDict(extra="ignore")

    priority: Priority = 100
    resources: ResourcesSpec = ResourcesSpec()
    scaling: _Scaling = _Scaling.model_construct(max_replicas=1)
    pod: _Pod | None = None
    slo: _Slo = Field(default_factory=_Slo)
    scale_target_ref: _Target | None = None

    @property
    def workers(self) -> _Workers | None:
        """Of an enrolled object that makes such."""
        return None if self.scale_target_ref is None else self.scale_target_ref.workers


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
        terms=ANYWHERE if part.pod is None else part.pod.resolve(),
        promise=part.slo.resolve(),
        deleted=event.deleted,
        override=event.override,
        workers=None if part.workers is None else part.workers.resolve(),
    )


def _read(spec: Mapping[str, object]) -> _Part:
    try:
        return _Part.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"spec.{where} cannot be read: {first['msg']}") from None
