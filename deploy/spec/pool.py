"""The document that declares the settings of a pool of GPUs, and the rule between its fields."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ValidationError, model_validator

from deploy.spec.document import MetadataSpec, broken_rule
from events.spec import Spec
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.pool_spec import PoolSpec


class GpuPool(Spec):
    """How the GPUs of a pool are lent to training and taken back, and what a cold start is worth. The pool that relume
    leads is called default."""

    api_version: Literal["relume.dev/v1alpha1"]
    """The version of this document's form."""
    kind: Literal["GpuPool"]
    """What is declared."""
    metadata: MetadataSpec
    """Which pool."""
    spec: PoolSpec = PoolSpec()
    """Its settings."""

    @model_validator(mode="after")
    def _rules_between_fields(self) -> Self:
        settling = self.spec.settling
        if settling.first > settling.longest:
            rule = "first is longer than longest, so longest would shorten it"
            broken = broken_rule(
                ("spec", "settling", "first"), settling.first, rule, "make it shorter, or settling.longest longer",
                "spec.settling.longest",
            )  # fmt: skip
            raise ValidationError.from_exception_data("GpuPool", [broken])
        return self

    def resolve(self) -> PoolPolicy:
        """Plain numbers, all of them."""
        return self.spec.resolve()
