"""Preemption's slice of the declaration: what a replica needs of the machine, and its priority."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from events.spec import Quantity, Spec
from events.types.shared import Resources


class ResourcesSpec(Spec):
    """What one replica needs. GPUs whole, or a fraction of one, or bytes of one, or a MIG profile: one of the four."""

    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """Whole GPUs."""
    gpu_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """A part of one GPU, such as 0.5."""
    gpu_memory: Annotated[Quantity, Field(gt=0)] | None = None
    """Bytes of one GPU's memory, such as 20Gi: a part of any card that has so much for programs."""
    mig_profile: str | None = None
    """A MIG profile, such as 1g.10gb."""
    cpu: Annotated[float, Field(gt=0, le=4096)] = 1.0
    """Cores."""
    memory: Annotated[Quantity, Field(gt=0)] = 1 << 30
    """Bytes of main memory."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [name for name, given in (("gpus", self.gpus > 0), ("gpuFraction", self.gpu_fraction is not None),
                                          ("gpuMemory", self.gpu_memory is not None),
                                          ("migProfile", self.mig_profile is not None)) if given]  # fmt: skip
        if len(kinds) > 1:
            raise ValueError(f"{' and '.join(kinds)} are given together; keep one")
        return self

    def resolve(self) -> Resources:
        """Plain numbers, as they travel in grants."""
        return Resources(
            gpus=self.gpus, gpu_fraction=self.gpu_fraction or 0.0, mig_profile=self.mig_profile or "",
            cpu=self.cpu, memory_bytes=self.memory, gpu_bytes=self.gpu_memory or 0,
        )  # fmt: skip


Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
"""Only strictly lower priorities yield to higher ones. Models 100 by default, training 0."""
