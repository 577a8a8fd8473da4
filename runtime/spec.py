"""The runtime's slice of the declaration: engine, slots, timeouts, aliases."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from events.spec import Duration, Spec
from events.units import Seconds
from runtime.core.policy import Batching, BatchRule, Timeouts


class EngineType(StrEnum):
    """The engines there are."""

    LLAMACPP = "llamacpp"
    SIMULATED = "simulated"
    COMMAND = "command"


class EngineSpec(Spec):
    """Which engine runs the model, and its options; each engine checks its own options."""

    type: EngineType
    """llamacpp (llama.cpp in a process of its own), simulated (no model, real HTTP), or command (any OpenAI-compatible
    server)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of that engine; `relume schema` lists them."""


class TimeoutsSpec(Spec):
    """Budgets of one request, from its dispatch to a replica. (Time in the hold queue is `coldStart.hold.maxWait`.)"""

    first_byte: Annotated[Duration, Field(gt=0)] = 60.0
    """Longest wait for the first byte of the answer."""
    idle: Annotated[Duration, Field(gt=0)] = 120.0
    """Longest silence between two bytes of the answer."""
    total: Annotated[Duration, Field(gt=0)] = 600.0
    """Longest whole answer; a replica that is not done by then is suspect and is replaced."""

    def resolve(self) -> Timeouts:
        """Plain numbers."""
        return Timeouts(first_byte=Seconds(self.first_byte), idle=Seconds(self.idle), total=Seconds(self.total))


class BatchingSpec(Spec):
    """Single requests to /v1/embeddings, /v1/completions and the inference protocol of KServe v2 are gathered into one
    for the engine, by a front that each replica has."""

    rule: BatchRule = BatchRule.ADAPTIVE
    """How the size of batches is found: adaptive (by what more at a time is worth), fixed, or aimd-gpu."""
    window: Annotated[Duration, Field(ge=0, le=1)] = 0.02
    """How long the first of a batch waits for others while the engine is idle."""
    max_size: Annotated[int, Field(ge=2, le=64)] = 32
    """Most inputs in one batch. No more come together than the replica has slots."""
    latency: Annotated[Duration, Field(gt=0, le=600)] = 1.0
    """Within how long 99 of 100 requests are to be answered: the rules make batches smaller above 80 % of it."""

    def resolve(self) -> Batching:
        """Plain numbers."""
        return Batching(self.rule, Seconds(self.window), self.max_size, Seconds(self.latency))


Slots = Annotated[int, Field(ge=1, le=4096)]
"""Requests that one replica runs at the same time; sets the engine's parallelism."""
