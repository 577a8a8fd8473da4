"""Latency sketches."""

from __future__ import annotations

import random

import pytest

from events.types.shared import Sketch
from runtime.core.sketch import ACCURACY, GROWTH, LARGEST, SMALLEST, SketchBuilder, bucket_of, merged, quantile


def sketch(*values: float) -> Sketch:
    builder = SketchBuilder()
    for value in values:
        builder.add(value)
    return builder.sketch()


@pytest.mark.parametrize("value", [SMALLEST, 1e-3, 0.25, 1.0, 1.0000001, 3.7, 600.0, LARGEST])
def test_a_bucket_holds_what_the_event_promises(value: float) -> None:
    """Bucket i holds values in (g^(i-1), g^i]."""
    bucket = bucket_of(value)
    assert GROWTH ** (bucket - 1) < value * (1 + 1e-9)
    assert value * (1 - 1e-9) <= GROWTH**bucket


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-12, 1e12])
def test_values_beyond_the_bounds_share_the_outermost_buckets(value: float) -> None:
    """So the number of buckets is bounded."""
    assert bucket_of(value) in (bucket_of(SMALLEST), bucket_of(LARGEST))


def test_quantiles_are_within_five_percent() -> None:
    """Against the exact quantiles of ten thousand latencies over five orders of magnitude."""
    rng = random.Random(7)
    values = sorted(rng.lognormvariate(-1, 2) for _ in range(10_000))
    seen = sketch(*values)
    for rank in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, int(rank * len(values) + 0.999999) - 1)]
        found = quantile(seen, rank)
        assert found is not None
        assert abs(found - exact) <= ACCURACY * exact * 1.0001


def test_sketches_add_up() -> None:
    """Merging two is the same as having added all to one."""
    rng = random.Random(8)
    one, other = ([rng.expovariate(1.0) for _ in range(500)] for _ in range(2))
    both, sum_of_both = sketch(*one, *other), merged(sketch(*one), sketch(*other))
    assert (sum_of_both.buckets, sum_of_both.count) == (both.buckets, both.count)
    assert sum_of_both.sum == pytest.approx(both.sum)


def test_an_empty_sketch_has_no_quantile() -> None:
    """Unknown is None."""
    assert quantile(Sketch(), 0.5) is None
    assert sketch() == Sketch()
