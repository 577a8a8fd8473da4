"""The demo's figures: nearest-rank percentiles, words for seconds, failures counted by kind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.summary import (
    Percentiles,
    Start,
    failures,
    first_tokens,
    percentiles,
    phase_names,
    seconds,
)
from tests.support.demo import ANSWER, FAILED, summary


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], Percentiles(0, None, None, None, None)),
        ([5.0], Percentiles(1, 5.0, 5.0, 5.0, 5.0)),
        ([2.0, 1.0], Percentiles(2, 1.0, 2.0, 2.0, 2.0)),
        ([float(n) for n in range(100, 0, -1)], Percentiles(100, 50.0, 95.0, 99.0, 100.0)),
        ([float(n) for n in range(1, 11)], Percentiles(10, 5.0, 10.0, 10.0, 10.0)),
    ],
)
def test_percentiles_are_nearest_rank(values: list[float], told: Percentiles) -> None:
    """The smallest value that at least so many per cent do not exceed; unknown when nothing was measured."""
    assert percentiles(values) == told


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_are_measured_values_that_enough_do_not_exceed(values: list[float]) -> None:
    """The definition, whatever the values."""
    told = percentiles(values)
    for share, value in ((0.5, told.p50), (0.95, told.p95), (0.99, told.p99), (1.0, told.worst)):
        assert value in values
        assert sum(one <= value for one in values) >= share * len(values)
        assert sum(one < value for one in values) < share * len(values)


def test_only_whole_answers_count_as_first_tokens() -> None:
    """Failed ones have no first token to speak of, also when one came before they broke."""
    broken = replace(ANSWER, error="the stream ended without [DONE]")
    assert first_tokens([ANSWER, FAILED, broken]) == [0.8]


def test_failures_are_counted_by_kind() -> None:
    """Each kind once, the most frequent first, at most ten; whole answers are none."""
    nothing = replace(ANSWER, tokens=0)
    assert failures([ANSWER, nothing, FAILED, FAILED]) == ("503: no slot <b> (2 times)", "200: no token")
    assert len(failures([replace(FAILED, error=str(number)) for number in range(30)])) == 10


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0 ms"), (0.0304, "30 ms"), (0.9994, "999 ms"), (75.5, "75.50 s")]
)
def test_seconds_in_words(value: float | None, text: str) -> None:
    """Milliseconds below one second; unknown is a dash, not zero."""
    assert seconds(value) == text


def test_phases_in_their_order() -> None:
    """Each once, in the order of the first start that has it."""
    one, two = Start("a", {"spawn": 1.0, "load": 2.0}, 3.0), Start("b", {"spawn": 1.0, "fetch": 1.0, "load": 1.0}, 3.0)
    assert phase_names([one, two]) == ["spawn", "load", "fetch"]
    assert phase_names([]) == []


def test_becomes_json() -> None:
    """Plain values, unknown as null."""
    told = json.loads(json.dumps(summary().as_json()))
    assert told["seconds_to_zero"] is None
    assert told["starts"][0]["phases"] == {"spawn": 0.25, "load": 1.5}
