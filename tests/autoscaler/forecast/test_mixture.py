"""The mixture: chances are chances, what comes regularly is learned, and the same past gives the same forecast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.forecast.features import AGES, CASES, COUNT, GROUPS, QUIETS, features
from autoscaler.core.forecast.history import pushed
from autoscaler.core.forecast.mixture import Learned, chance, learn, normal
from autoscaler.core.forecast.prior import AGES as BY_AGE
from autoscaler.core.forecast.prior import MEAN, SCALE, WEIGHTS


def forecasts(past: list[bool]) -> list[float]:
    """What was said before each grain, learning from each."""
    bits, said, learned = 0, [], Learned()
    for length, needed in enumerate(past):
        found = features(bits, length, 1, below=True)
        seen = normal(found)
        said.append(chance(seen, found.case, learned))
        learned = learn(seen, said[-1], needed, learned)
        bits = pushed(bits, needed)
    return said


def test_the_prior_fits_the_features() -> None:
    """Written by the learning program; it must be written anew when the features change."""
    assert len(MEAN) == len(SCALE) == COUNT
    assert (len(WEIGHTS), len(BY_AGE)) == (QUIETS, len(AGES) + 1)
    assert len(WEIGHTS) * len(BY_AGE) == CASES
    assert {len(row) for row in (*WEIGHTS, *BY_AGE)} == {COUNT}


def test_each_feature_is_in_one_group() -> None:
    """All but the last, which is constant: what is tried without a group takes away nothing else."""
    assert [at for columns in GROUPS.values() for at in columns] == list(range(COUNT - 1))


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8))
def test_every_past_gives_a_chance(past: list[bool], level: int) -> None:
    """Between 0 and 1, and a case that has weights, whatever came before."""
    bits = 0
    for needed in past:
        bits = pushed(bits, needed)
    found = features(bits, len(past), level, below=True)
    assert len(found.values) == COUNT
    assert 0 <= found.case < CASES
    assert 0.0 < chance(normal(found), found.case, Learned()) < 1.0


@given(st.lists(st.booleans(), max_size=40))
def test_the_same_past_gives_the_same_forecasts(past: list[bool]) -> None:
    """Nothing but the arguments counts."""
    assert forecasts(past) == forecasts(past)


@pytest.mark.parametrize("period", [2, 3, 5, 7, 15, 30])
def test_what_comes_regularly_is_expected_then_and_only_then(period: int) -> None:
    """After ten times, more likely than not at its time; and far from it a moment before."""
    past = [(grain + 1) % period == 0 for grain in range(12 * period)]
    said = forecasts(past)
    assert all(chance > 0.5 for chance in said[11 * period - 1 :: period])
    assert max(said[11 * period : 12 * period - 2], default=0.0) < 0.3


def test_what_never_comes_again_is_soon_not_expected() -> None:
    """One request, then a day of quiet."""
    said = forecasts([True] + [False] * 600)
    assert said[-1] < 0.01
