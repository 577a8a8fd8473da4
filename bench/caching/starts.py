"""Starts of models, from a trace of minutes: when weights are needed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deploy.simulation.minutes import MINUTE, MinuteTrace
from events.units import Bytes

GIB: Final = 1 << 30

KEEP_ALIVE: Final = 5
"""Minutes without a request after which a model goes to zero (design §1)."""

SIZES: Final = (1, 2, 6, 14, 16, 26, 68, 140)
"""GiB of weights: 0.5, 1, 3, 7, 8, 13, 34 and 70 billion parameters of two bytes. The trace says nothing of weights, so
each model draws one of these by the seed, independently of how often it is asked for. A choice."""


@dataclass(frozen=True, slots=True)
class Start:
    """A model at zero is asked for: its weights are needed at `at` (seconds)."""

    model: int
    at: float


@dataclass(frozen=True, slots=True)
class Starts:
    """All starts of a trace in their order, and the bytes of each model's weights."""

    starts: tuple[Start, ...]
    sizes: tuple[Bytes, ...]

    @property
    def total(self) -> int:
        """Bytes of the weights that are asked for at all."""
        return sum(self.sizes[model] for model in {start.model for start in self.starts})


def starts_of(trace: MinuteTrace, seed: int) -> Starts:
    """Starts as a keep-alive of `KEEP_ALIVE` minutes makes them. Those of one minute are in an order of the seed."""
    chance = random.Random(seed)
    sizes = tuple(Bytes(chance.choice(SIZES) * GIB) for _ in trace.names)
    starts = [start for model in range(len(trace.names)) for start in _starts(model, trace)]
    chance.shuffle(starts)
    return Starts(tuple(sorted(starts, key=lambda start: start.at)), sizes)


def _starts(model: int, trace: MinuteTrace) -> Sequence[Start]:
    spans: list[tuple[int, int]] = []
    for minute, needed in enumerate(trace.needed[model].tolist()):
        if not needed:
            continue
        if spans and minute < spans[-1][1]:
            spans[-1] = spans[-1][0], minute + 1 + KEEP_ALIVE
        else:
            spans.append((minute, minute + 1 + KEEP_ALIVE))
    return [Start(model, begin * MINUTE) for begin, _ in spans]
