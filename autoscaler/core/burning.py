"""How fast a model's objectives are used up, folded from the latency sketches of its windows.

An answer is bad when its first byte came later than promised, surely: the bucket that holds the promise itself counts
as good (buckets are 10 % wide). A request that was refused is bad too. The windows are those of `autoscaler.core.burn`.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

from autoscaler.core.model import Burn
from autoscaler.core.policy import Objective
from autoscaler.core.rings import Ring
from events.types.requests import RequestWindow
from events.units import Instant, Seconds

SPANS: Final = (Seconds(3600.0), Seconds(300.0), Seconds(21600.0), Seconds(1800.0))
"""One hour and five minutes; six hours and thirty minutes."""

CELLS: Final = 12
ANSWERS_LEAST: Final = 20
"""Of fewer answers in a window nothing is concluded: one bad one of ten is a tenth by chance. Chosen."""

SOURCES_MOST: Final = 256
GAMMA: Final = (1 + 0.05) / (1 - 0.05)
"""Of the sketches (`events.types.shared.Sketch`)."""


class Burning:
    """Of one model with objectives. Nothing is told before five minutes of answers are known: the first start of a
    model is late for everybody, and more replicas do not mend that."""

    __slots__ = ("_begins", "_limits", "_rings", "_seen", "objectives")

    def __init__(self, objectives: tuple[Objective, ...]) -> None:
        self.objectives = objectives
        self._limits = tuple(ceil(log(one.within) / log(GAMMA) - 1e-9) for one in objectives)
        self._rings = tuple((Ring(span, CELLS), tuple(Ring(span, CELLS) for _ in objectives)) for span in SPANS)
        self._seen: dict[tuple[str, int], tuple[float, int, tuple[int, ...]]] = {}
        self._begins: Instant | None = None

    def window(self, source: str, window: RequestWindow, at: Instant) -> None:
        """Fold a window: of one that replaces an earlier one, what it tells beyond it."""
        total, bad = window.first_byte.count + window.refusals, self._bad(window)
        key = (source, window.revision)
        started_at, before, bad_before = self._seen.pop(key, (0.0, 0, (0,) * len(bad)))
        if len(self._seen) >= SOURCES_MOST:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (window.started_at, total, bad)
        if started_at == window.started_at:
            total -= before
            bad = tuple(now - then for now, then in zip(bad, bad_before, strict=True))
        if total <= 0:
            return
        if self._begins is None:
            self._begins = at
        for every, bads in self._rings:
            every.add(at, at, total)
            for ring, count in zip(bads, bad, strict=True):
                if count > 0:
                    ring.add(at, at, count)

    def measure(self, now: Instant) -> Burn:
        """The fastest of the objectives, in each window."""
        if self._begins is None or now < self._begins + SPANS[1]:
            return Burn()
        rates = [self._rate(every, bads, now) for every, bads in self._rings]
        return Burn(fast=rates[0], fast_now=rates[1], slow=rates[2], slow_now=rates[3])

    def _rate(self, every: Ring, bads: tuple[Ring, ...], now: Instant) -> float | None:
        total = every.total(now)
        if total < ANSWERS_LEAST:
            return None
        pairs = zip(bads, self.objectives, strict=True)
        return max(bad.total(now) / total / (1.0 - one.part) for bad, one in pairs)

    def _bad(self, window: RequestWindow) -> tuple[int, ...]:
        buckets = window.first_byte.buckets
        return tuple(
            window.refusals + sum(count for index, count in buckets if index > limit) for limit in self._limits
        )
