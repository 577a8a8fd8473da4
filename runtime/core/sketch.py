"""DDSketch with 5 % relative accuracy: quantiles of latencies that add up exactly over windows and gateways.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from events.types.shared import Sketch
from events.units import Seconds

ACCURACY = 0.05
"""Relative accuracy, as `events.types.shared.Sketch` promises."""

GROWTH = (1 + ACCURACY) / (1 - ACCURACY)
_LOG_GROWTH = math.log(GROWTH)

SMALLEST = 1e-6
LARGEST = 1e6
"""Seconds below and above which values share the outermost bucket: a microsecond, eleven days. At most 278 buckets."""

_SMALLEST_BUCKET = math.ceil(math.log(SMALLEST) / _LOG_GROWTH)


def bucket_of(seconds: float) -> int:
    """The bucket of a value: the `i` with GROWTH^(i-1) < value <= GROWTH^i."""
    if seconds <= SMALLEST:
        return _SMALLEST_BUCKET
    return math.ceil(math.log(min(LARGEST, seconds)) / _LOG_GROWTH)


def value_of(bucket: int) -> Seconds:
    """The value that stands for a bucket: no value inside is further away than 5 %."""
    return Seconds(2.0 * GROWTH**bucket / (GROWTH + 1.0))


class SketchBuilder:
    """Gathers values; `sketch()` is what it has gathered.

    Values are only kept by `add`, and put into their buckets together: a request adds three. That takes 0.04 µs on the
    request's way instead of 0.9. A builder lives for one window of a second, which bounds what it keeps.
    """

    __slots__ = ("_buckets", "_count", "_gathered", "_sum", "add")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0
        self._sum = 0.0
        self._gathered: list[float] = []
        self.add: Callable[[float], None] = self._gathered.append
        """One value, in seconds; a negative one counts as 0."""

    def merge(self, other: Sketch) -> None:
        """All values of another sketch."""
        for bucket, count in other.buckets:
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self._count += other.count
        self._sum += other.sum

    def sketch(self) -> Sketch:
        """The values so far, buckets in order."""
        self._fold()
        if not self._count:
            return EMPTY
        return Sketch(buckets=_ordered(self._buckets), count=self._count, sum=self._sum)

    def _fold(self) -> None:
        """Put what was added into its buckets (`bucket_of`, written out)."""
        buckets = self._buckets
        for seconds in self._gathered:
            if seconds <= SMALLEST:
                bucket = _SMALLEST_BUCKET
            else:
                bucket = math.ceil(math.log(min(LARGEST, seconds)) / _LOG_GROWTH)
            buckets[bucket] = buckets.get(bucket, 0) + 1
            if seconds > 0:
                self._sum += seconds
        self._count += len(self._gathered)
        self._gathered.clear()


EMPTY = Sketch()


def merged(one: Sketch, other: Sketch) -> Sketch:
    """Both sketches as one."""
    both = SketchBuilder()
    both.merge(one)
    both.merge(other)
    return both.sketch()


def quantile(sketch: Sketch, rank: float) -> Seconds | None:
    """The value below which `rank` (0..1) of all values lie, within 5 %; None when there is none."""
    if not sketch.count:
        return None
    wanted = max(1, math.ceil(rank * sketch.count))
    seen = 0
    for bucket, count in sketch.buckets:
        seen += count
        if seen >= wanted:
            return value_of(bucket)
    return value_of(sketch.buckets[-1][0])


def _ordered(buckets: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(buckets.items()))
