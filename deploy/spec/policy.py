"""A whole model, resolved: every field of the declaration as plain numbers and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.core.policy import ScalingPolicy
from coldstart.core.cache.wanted import DeclaredWeights
from coldstart.core.policy import ColdStartPolicy
from events.names import ModelName
from events.types.shared import Resources
from events.units import Seconds
from runtime.core.policy import Batching, Timeouts
from runtime.spec import EngineType

Percentiles = tuple[tuple[float, Seconds], ...]
"""Promised (quantile between 0 and 1, most seconds), by rising quantile."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """What the owner of a model promises: shown by `relume explain` and exported as metrics, beside what was measured
    (`deploy/api/promises.py`).

    `availability` is a fraction of requests (0.999), None when nothing is promised.
    """

    time_to_first_token: Percentiles
    latency: Percentiles
    availability: float | None


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """One model's declaration, resolved. `options` are the engine's, as it checked them; `weights` what is fetched."""

    model: ModelName
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    engine: EngineType
    options: Mapping[str, object]
    weights: DeclaredWeights | None
    resources: Resources
    priority: int
    slots: int
    batching: Batching | None
    scaling: ScalingPolicy
    cold_start: ColdStartPolicy
    timeouts: Timeouts
    objectives: Objectives
    aliases: tuple[str, ...]
