"""What no cache can exceed, whatever it knows: the offline optimum, bounded from above.

PFOO-L (Berger, Beckmann, Harchol-Balter: Practical Bounds on Optimal Caching with Variable Object Sizes, SIGMETRICS
2018): to hit, an object must take its size from its last start to this one. All hits together cannot take more than the
capacity times the length of the trace; the cheapest that fit are more than any cache gets.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.caching.keeping import SLA, Kept, fetch_seconds
from bench.caching.starts import Starts


def most(starts: Starts, capacity: int) -> Kept:
    """The most bytes and the most promises, each by itself. Length is counted in starts."""
    asked = sum(starts.sizes[start.model] for start in starts.starts)
    by_bytes = _most(starts, capacity, float)
    by_promises = _most(starts, capacity, lambda size: 1.0 if fetch_seconds(size) > SLA else 0.0)
    anyway = sum(fetch_seconds(starts.sizes[start.model]) <= SLA for start in starts.starts)
    return Kept(by_bytes / asked, (by_promises + anyway) / len(starts.starts))


def _most(starts: Starts, capacity: int, value: Callable[[int], float]) -> float:
    last: dict[int, int] = {}
    intervals: list[tuple[float, float]] = []
    for number, start in enumerate(starts.starts):
        size = starts.sizes[start.model]
        if start.model in last and value(size):
            intervals.append((size * (number - last[start.model]), value(size)))
        last[start.model] = number
    left, got = float(capacity * len(starts.starts)), 0.0
    for taken, gain in sorted(intervals, key=lambda one: one[0] / one[1]):
        part = min(1.0, left / taken)
        got, left = got + gain * part, left - taken * part
        if left <= 0:
            break
    return got
