"""Policies over grains: tables of what each holds, and what is true of all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.grains.histogram import BINS, HybridHistogram
from autoscaler.core.grains.oracle import Oracle
from autoscaler.core.grains.peers import Concurrency, Hpa, Keda, KeepAlive, Knative
from autoscaler.core.grains.policy import GrainPolicy, Relume
from events.units import Seconds

needs = st.lists(st.integers(0, 6), max_size=30)
ALL: list[GrainPolicy[Any]] = [
    KeepAlive(Seconds(300.0)), Knative(), Concurrency(), Hpa(), Keda(), HybridHistogram(), Relume(Seconds(2500.0)),
]  # fmt: skip


def held(policy: GrainPolicy[Any], needed: list[int]) -> list[int]:
    """Through each grain, and through the one after the last."""
    state, row = policy.begin(), []
    for now in needed:
        row.append(policy.hold(state))
        state = policy.after(state, now)
    return [*row, policy.hold(state)]


@pytest.mark.parametrize(
    ("policy", "needed", "wanted"),
    [
        (KeepAlive(Seconds(120.0)), [2, 1, 0, 0], [0, 2, 2, 1, 0]),
        (KeepAlive(Seconds(5.0)), [2, 1, 0], [0, 2, 1, 0]),
        (Knative(), [2, 1, 0], [0, 2, 1, 0]),
        (Knative(Seconds(120.0)), [4, 0, 0], [0, 2, 2, 0]),
        (Knative(Seconds(60.0), Seconds(60.0)), [4, 0, 0], [0, 4, 1, 0]),
        (Concurrency(Seconds(180.0)), [3, 3, 3, 0, 0, 0], [0, 1, 2, 3, 2, 1, 0]),
        (Hpa(), [0, 3, *[0] * 5], [1, 1, 3, 3, 3, 3, 3, 1]),
        (Hpa(), [20, 21], [1, 20, 20]),
        (Keda(), [0, 3, *[0] * 5], [0, 0, 3, 3, 3, 3, 3, 0]),
    ],
)
def test_what_is_held(policy: GrainPolicy[Any], needed: list[int], wanted: list[int]) -> None:
    """Through the first grain nothing is known."""
    assert held(policy, needed) == wanted


def test_the_histogram_loads_ahead_and_lets_go() -> None:
    """Idle for 20 minutes each time: let go at once, loaded at 18 = 0.9 x 20, given up after 23.1 = 1.1 x 21."""
    row = held(HybridHistogram(), [1, *([0] * 20 + [1]) * 5, *[0] * 30])
    assert row[-31:] == [0] * 18 + [1] * 6 + [0] * 7


def test_a_histogram_that_says_nothing_keeps_everything() -> None:
    """After the first use: four hours."""
    row = held(HybridHistogram(), [1, *[0] * (BINS + 5)])
    assert sum(row) == BINS


def test_idle_times_beyond_the_histogram_are_forecast() -> None:
    """Every 301 minutes: loaded at 0.85 of the forecast, and kept for 0.30 of it."""
    row = held(HybridHistogram(), [1, *([0] * 300 + [1]) * 3, *[0] * 400])
    last = row[-401:]
    assert (last.index(1), sum(last)) == (255, 90)


@given(needs)
def test_the_oracle_is_never_cold_and_never_idle(needed: list[int]) -> None:
    """It holds what is needed."""
    assert held(Oracle(tuple(needed)), needed) == [*needed, 0]


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: type(policy).__name__)
@settings(max_examples=15)
@given(needed=needs, then=needs)
def test_only_the_past_counts(policy: GrainPolicy[Any], needed: list[int], then: list[int]) -> None:
    """What comes later changes nothing that was held before; and nothing is ever below zero."""
    before = held(policy, needed)
    assert held(policy, [*needed, *then])[: len(before)] == before
    assert min(before) >= 0


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: type(policy).__name__)
def test_a_constant_need_is_held_and_quiet_comes_to_rest(policy: GrainPolicy[Any]) -> None:
    """Quiet at constant load; and (but for the HPA, which cannot) back to zero within a day."""
    assert held(policy, [2] * 40)[-5:] == [2] * 5
    assert held(policy, [2] * 40 + [0] * 1440)[-1] == (1 if isinstance(policy, Hpa) else 0)
