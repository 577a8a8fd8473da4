"""What the autoscaler reads of a declaration as it travels in `relume.models`."""

from __future__ import annotations

from pydantic import ConfigDict

from autoscaler.core.view import Declared
from autoscaler.schedules import schedules_of
from autoscaler.slo_spec import SloSlice, promising
from autoscaler.spec import ScalingSpec
from events.spec import Spec
from events.types.models import ModelDeclared


class _Slice(Spec):
    """The autoscaler's part of `spec`; the rest belongs to others."""

    model_config = ConfigDict(extra="ignore")

    slots: int
    priority: int
    scaling: ScalingSpec = ScalingSpec()
    slo: SloSlice = SloSlice()


def read_declaration(declared: ModelDeclared) -> Declared:
    """Plain numbers of a declaration. ValueError when its spec cannot be read."""
    part = _Slice.model_validate(declared.spec)
    resolved = part.scaling.resolve(slots=part.slots, priority=part.priority)
    policy = promising(resolved, part.slo.objectives(), target_given=part.scaling.target is not None)
    return Declared(
        uid=declared.uid,
        revision=declared.revision,
        policy=policy,
        deleted=declared.deleted,
        schedule=schedules_of(policy.schedules),
    )
