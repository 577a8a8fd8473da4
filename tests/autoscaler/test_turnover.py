"""How long it takes until as many have ended as ran: an engine that gets slower is seen within what one takes then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.turnover import LATE, Turnover
from events.units import Instant, Seconds
from tests.support.autoscaling import T0

SPAN = Seconds(60.0)


def told(*seconds: tuple[float, float]) -> Turnover:
    """Second by second: how many ran, and how many ended."""
    turnover = Turnover(SPAN, 60)
    for at, (running, finishes) in enumerate(seconds):
        turnover.add(T0 + at, T0 + at + 1, running, finishes)
    return turnover


def said(seconds: float, *beats: tuple[float, float]) -> float:
    return told(*beats).at_least(seconds, Instant(T0 + len(beats)))


def test_what_stays_as_it_was() -> None:
    """Thirty at a time of five seconds each: what is known is right; what was believed too short is put right."""
    beats = [(30.0, 6.0)] * 60
    assert said(5.0, *beats) == 5.0
    assert said(9.0, *beats) == 9.0
    assert said(1.0, *beats) == pytest.approx(4.0, abs=1.0)


@pytest.mark.parametrize("slower", [6.0, 10.0, 20.0, 40.0])
def test_an_engine_that_gets_slower(slower: float) -> None:
    """Of two seconds until now: for as long as the new time takes, and two for late windows, most of it is said."""
    after = [(32.0, 32.0 / slower)] * round(slower + LATE)
    assert 0.6 * slower <= said(2.0, *[(12.0, 6.0)] * 60, *after) <= slower


def test_a_burst_is_no_slow_engine() -> None:
    """Sixteen begin at once and end one a second: never longer than the burst is old, and of the last few nothing."""
    beats: list[tuple[float, float]] = []
    for age in range(1, 17):
        beats = [(0.0, 0.0)] * 40 + [(15.5 - at, 1.0) for at in range(age)]
        assert said(2.0, *beats) <= max(2.0, age - LATE)
    assert said(2.0, *beats, *[(3.0, 0.0)] * 20) == 2.0


@given(
    beats=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=90), seconds=st.floats(0.01, 600),
    fewer=st.floats(0, 1),
)  # fmt: skip
def test_it_only_adds(beats: list[tuple[float, float]], seconds: float, fewer: float) -> None:
    """Never shorter than what is known, never longer than what is looked at; and the fewer end the longer it is."""
    now = Instant(T0 + len(beats))
    one = told(*beats).at_least(seconds, now)
    assert seconds <= one <= max(seconds, SPAN)
    assert told(*[(running, ended * fewer) for running, ended in beats]).at_least(seconds, now) >= one
