"""How fast a model's objectives are used up, folded from its windows.

An answer is late when it came later than promised, surely: the bucket that holds the promise itself counts as good
(buckets are 10 % wide). A request that was refused is bad for every promise. One that failed (5xx, a broken connection,
a timeout) is bad for availability alone, and is told apart: more replicas do not mend it. The windows of time are those
of `autoscaler.core.burn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Final

from autoscaler.core.grown import Grown
from autoscaler.core.model import Burn
from autoscaler.core.policy import Objective, Promised
from autoscaler.core.rings import Ring
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from events.units import Instant, Seconds

SPANS: Final = (Seconds(3600.0), Seconds(300.0), Seconds(21600.0), Seconds(1800.0))
"""One hour and five minutes; six hours and thirty minutes."""

LONGEST: Final = SPANS.index(max(SPANS))

CELLS: Final = 12
ANSWERS_LEAST: Final = 20
"""Of fewer answers in a window nothing is concluded: one bad one of ten is a tenth by chance. Chosen."""

GAMMA: Final = (1 + 0.05) / (1 - 0.05)
"""Of the sketches (`events.types.shared.Sketch`)."""

NOT_BURNING: Final = Burn()


@dataclass(frozen=True, slots=True)
class Rates:
    """`mendable`: late or refused, which more replicas may mend. `failing`: answered with an error."""

    mendable: Burn
    failing: Burn | None


class Burning:
    """Of one model with objectives. Nothing is told before five minutes of answers are known: the first start of a
    model is late for everybody, and more replicas do not mend that."""

    __slots__ = ("_begins", "_failing", "_grown", "_limits", "_nothing", "_quiet", "_rings", "objectives")

    def __init__(self, objectives: tuple[Objective, ...]) -> None:
        self.objectives = objectives
        self._limits = tuple(bucket_within(one.within) for one in objectives)
        self._grown = Grown()
        self._failing = next((one for one in objectives if one.of is Promised.AVAILABILITY), None)
        several = 2 * len(objectives) + (self._failing is not None)
        self._nothing = (0.0,) * several
        self._quiet = Rates(NOT_BURNING, None if self._failing is None else NOT_BURNING)
        self._rings = tuple(list[Ring | None]([None] * several) for _ in SPANS)
        """By span: of each objective all and bad ones, then those that failed; what never came has no ring."""
        self._begins: Instant | None = None

    def window(self, source: str, window: RequestWindow, at: Instant) -> None:
        """Fold a window: of one that replaces an earlier one, what it tells beyond it."""
        new = self._grown.since(source, window, self._counts(window))
        if new is self._nothing or not any(new):
            return
        if self._begins is None:
            self._begins = at
        for span, rings in zip(SPANS, self._rings, strict=True):
            for index, count in enumerate(new):
                if count > 0:
                    ring = rings[index]
                    if ring is None:
                        ring = rings[index] = Ring(span, CELLS)
                    ring.add(at, at, count)

    def measure(self, now: Instant) -> Rates:
        """The fastest of the objectives, in each span."""
        if self._begins is None or now < self._begins + SPANS[1] or not self._enough(now):
            return self._quiet
        burns = [self._burn(rings, now) for rings in self._rings]
        mendable = Burn(fast=burns[0][0], fast_now=burns[1][0], slow=burns[2][0], slow_now=burns[3][0])
        if self._failing is None:
            return Rates(mendable, None)
        failing = Burn(fast=burns[0][1], fast_now=burns[1][1], slow=burns[2][1], slow_now=burns[3][1])
        return Rates(mendable, failing)

    def _enough(self, now: Instant) -> bool:
        """Whether the longest span has answers enough of any objective: what it lacks no shorter one has."""
        rings = self._rings[LONGEST]
        return any(_total(ring, now) >= ANSWERS_LEAST for ring in rings[: 2 * len(self.objectives) : 2])

    def _burn(self, rings: Sequence[Ring | None], now: Instant) -> tuple[float | None, float | None]:
        """Of one span: by what is late or refused, and by what failed."""
        mendable: float | None = None
        failing: float | None = None
        for index, one in enumerate(self.objectives):
            every = _total(rings[2 * index], now)
            if every < ANSWERS_LEAST:
                continue
            rate = _total(rings[2 * index + 1], now) / every / (1.0 - one.part)
            mendable = rate if mendable is None else max(mendable, rate)
            if one is self._failing:
                failing = _total(rings[-1], now) / every / (1.0 - one.part)
        return mendable, failing

    def _counts(self, window: RequestWindow) -> tuple[float, ...]:
        """Of each objective all and bad ones; then those that failed. (Most windows tell of no answer.)"""
        if not (window.finishes or window.failures or window.refusals or window.first_byte.count or window.total.count):
            return self._nothing
        counts: list[float] = []
        for one, limit in zip(self.objectives, self._limits, strict=True):
            if one.of is Promised.AVAILABILITY:
                counts += (window.finishes + window.failures + window.refusals, window.refusals)
            else:
                sketch = window.first_byte if one.of is Promised.FIRST else window.total
                counts += (sketch.count + window.refusals, late(sketch, limit) + window.refusals)
        if self._failing is not None:
            counts.append(window.failures)
        return tuple(counts)


def _total(ring: Ring | None, now: Instant) -> float:
    return 0.0 if ring is None else ring.total(now)


def bucket_within(seconds: float) -> int:
    """The bucket of sketches that holds this time; whatever is in higher ones is longer."""
    return ceil(log(seconds) / log(GAMMA) - 1e-9) if seconds > 0 else 0


def late(sketch: Sketch, limit: int) -> int:
    """How many lie above this bucket."""
    return sum(count for index, count in sketch.buckets if index > limit)
