"""What the autoscaler reads of a declaration as it travels in `relume.models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from autoscaler.core.policy import COST_MOST
from autoscaler.core.view import Declared
from autoscaler.schedules import schedules_of
from autoscaler.slo_spec import SloSlice, promising
from autoscaler.spec import ScalingSpec
from coldstart.core.tiers import gpus_of
from events.spec import Duration, Quantity, Spec
from events.types.models import ModelDeclared
from events.types.pools import PoolDeclared
from events.units import Bytes, Seconds
from preemption.core.gpus.mig_names import compute_part


class _Resources(Spec):
    """What a replica takes; as in `preemption.spec`, which checks it."""

    model_config = ConfigDict(extra="ignore")

    gpus: int = 0
    gpu_fraction: float | None = None
    gpu_memory: Quantity | None = None
    mig_profile: str | None = None
    cpu: float = 1.0
    memory: Quantity = 1 << 30

    @property
    def in_gpus(self) -> float:
        """What was asked for in bytes counts as a card: how large cards are only the allocator knows."""
        part = self.gpu_fraction or (1.0 if self.gpu_memory else 0.0)
        cards = self.gpus or (compute_part("", self.mig_profile) if self.mig_profile else part)
        return gpus_of(cards, self.cpu, Bytes(self.memory))


class _ColdStart(Spec):
    """Only whether it sleeps."""

    model_config = ConfigDict(extra="ignore")

    sleep: dict[str, JsonValue] | None = None


class _Slice(Spec):
    """The autoscaler's part of `spec`; the rest belongs to others."""

    model_config = ConfigDict(extra="ignore")

    slots: int
    priority: int
    scaling: ScalingSpec = ScalingSpec()
    slo: SloSlice = SloSlice()
    resources: _Resources = _Resources()
    cold_start: _ColdStart = _ColdStart()


def read_declaration(declared: ModelDeclared) -> Declared:
    """Plain numbers of a declaration. ValueError when its spec cannot be read."""
    part = _Slice.model_validate(declared.spec)
    resolved = replace(
        part.scaling.resolve(slots=part.slots, priority=part.priority),
        gpus=part.resources.in_gpus, sleeps=part.cold_start.sleep is not None,
    )  # fmt: skip
    policy = promising(resolved, part.slo.objectives(), target_given=part.scaling.target is not None)
    return Declared(
        uid=declared.uid,
        revision=declared.revision,
        policy=policy,
        deleted=declared.deleted,
        schedule=schedules_of(policy.schedules),
    )


def gpus_taken(resources: Mapping[str, JsonValue]) -> float:
    """What a replica takes, in GPUs, by a declaration's `spec.resources`. ValueError when that cannot be read."""
    return _Resources.model_validate(resources).in_gpus


class _PoolSlice(Spec):
    """The autoscaler's part of a pool's `spec`."""

    model_config = ConfigDict(extra="ignore")

    cold_start_cost: Annotated[Duration, Field(ge=1, le=COST_MOST)] | None = None


def read_pool(declared: PoolDeclared) -> Seconds | None:
    """GPU-seconds that a cold start is worth by the pool; None: it does not say. ValueError when it cannot be read."""
    if declared.deleted:
        return None
    cost = _PoolSlice.model_validate(declared.spec).cold_start_cost
    return None if cost is None else Seconds(cost)
