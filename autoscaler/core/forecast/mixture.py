"""A logistic mixture of evidence: what was learned of many models before, and what this one teaches as time goes by.

The weights are a prior (see `prior`) plus this model's own, which follow the gradient of the coding cost with AdaGrad
(Duchi, Hazan & Singer 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import Final

from autoscaler.core.forecast.features import COUNT, Features
from autoscaler.core.forecast.prior import AGES, MEAN, SCALE, WEIGHTS
from events.kinds import value
from events.types.shared import Amount

RATE: Final = 0.07
"""Step of the own weights. Between 0.02 and 0.2 the forecasts differ by less than two hundredths of a bit a grain."""

LIKELY: Final = 0.65
SHARPNESS: Final = 0.08
LEAST_ATTENTION: Final = 0.05
"""Beyond `LIKELY` a replica is held at any price that people set, so whether it is 0.7 or 0.9 teaches less (see
`attention`). Chosen with the prior, on the data that it was learned from."""

SURPRISE_LEAST: Final = 0.001
"""A forecast that was right by so much teaches nothing. (Most grains of most models are quiet: it saves time.)"""

CERTAIN: Final = 12.0
"""Log odds beyond which nothing is told apart."""

_COMMON: Final = tuple(
    tuple(quiet + age for quiet, age in zip(by_quiet, by_age, strict=True)) for by_age in AGES for by_quiet in WEIGHTS
)
"""The prior's weights in each case."""


@value
class Learned:
    """What one model has taught: its own weights, added to the prior's, and how much each has been moved already."""

    weights: tuple[float, ...] = (0.0,) * COUNT
    moved: tuple[Amount, ...] = (1.0,) * COUNT


def normal(seen: Features) -> list[float]:
    """The features, each with the mean and the spread that the prior was learned with."""
    return [(one - mean) / scale for one, mean, scale in zip(seen.values, MEAN, SCALE, strict=True)]


def chance(seen: Sequence[float], case: int, learned: Learned) -> float:
    """How likely it is, 0 to 1. `seen`: normal features."""
    total = 0.0
    for one, common, own in zip(seen, _COMMON[case], learned.weights, strict=True):
        total += one * (common + own)
    return 1.0 / (1.0 + exp(-min(CERTAIN, max(-CERTAIN, total))))


def attention(said: float) -> float:
    """How much a forecast is worth learning from: whole where prices decide, little where none does."""
    return 1.0 / (1.0 + exp((said - LIKELY) / SHARPNESS)) + LEAST_ATTENTION


def learn(seen: Sequence[float], said: float, happened: bool, learned: Learned) -> Learned:
    """What is known once it has happened or not, after `said` was forecast from `seen`."""
    error = (said - happened) * attention(said)
    if abs(error) < SURPRISE_LEAST:
        return learned
    weights, moved = [], []
    for one, weight, so_far in zip(seen, learned.weights, learned.moved, strict=True):
        slope = error * one
        total = so_far + slope * slope
        moved.append(total)
        weights.append(weight - RATE * slope / sqrt(total))
    return Learned(weights=tuple(weights), moved=tuple(moved))
