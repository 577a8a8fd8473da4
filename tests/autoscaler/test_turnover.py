"""How long it takes until as many have ended as ran: an engine that gets slower is seen within what one takes then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.turnover import LATE, Turnover
from events.units import Instant, Seconds
from tests.support.autoscaling import T0

SPAN = Seconds(60.0)


def told(*seconds: tuple[float, float], begins: bool = False) -> Turnover:
    """Second by second: how many ran, and how many ended; and, with `begins`, so many began that this is so."""
    turnover, before = Turnover(SPAN, 60), 0.0
    for at, (running, finishes) in enumerate(seconds):
        begun = max(0.0, running - before + finishes) if begins else 0.0
        turnover.add(T0 + at, T0 + at + 1, running, begun, finishes)
        before = running
    return turnover


def said(seconds: float, *beats: tuple[float, float], begins: bool = False) -> float:
    running = round(beats[-1][0])
    return told(*beats, begins=begins).at_least(seconds, running, Instant(T0 + len(beats)))


def test_what_stays_as_it_was() -> None:
    """Thirty at a time of five seconds each: what is known is right; what was believed too short is put right."""
    beats = [(30.0, 6.0)] * 60
    for begins in (False, True):
        assert said(5.0, *beats, begins=begins) == 5.0
        assert said(9.0, *beats, begins=begins) == 9.0
        assert said(1.0, *beats, begins=begins) == pytest.approx(4.0, abs=1.0)


@pytest.mark.parametrize("age", [4, 8, 16, 40])
def test_an_engine_that_stands_still_is_seen_by_what_does_not_begin(age: int) -> None:
    """Six a second, of two seconds each; then none ends and all slots are soon taken: it takes longer than it has stood
    still, but for what has not been told yet, before the first of them ends. Who is not told of begins says less."""
    after = [(min(32.0, 12.0 + 6.0 * at), 0.0) for at in range(1, age + 1)]
    one = said(2.0, *[(12.0, 6.0)] * 60, *after, begins=True)
    assert age - 2.0 <= one <= age + 2.0
    assert said(2.0, *[(12.0, 6.0)] * 60, *after) <= one


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
        assert said(2.0, *beats, begins=True) <= max(2.0, age)
    assert said(2.0, *beats, *[(3.0, 0.0)] * 20) == 2.0


@given(
    beats=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=90), seconds=st.floats(0.01, 600),
    fewer=st.floats(0, 1),
)  # fmt: skip
def test_it_only_adds(beats: list[tuple[float, float]], seconds: float, fewer: float) -> None:
    """Never shorter than what is known, never longer than what is looked at; and the fewer end the longer it is."""
    now = Instant(T0 + len(beats))
    one = told(*beats).at_least(seconds, 0, now)
    assert seconds <= one <= max(seconds, SPAN)
    assert told(*[(running, ended * fewer) for running, ended in beats]).at_least(seconds, 0, now) >= one


@given(
    beats=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=90), seconds=st.floats(0.01, 600),
    running=st.integers(0, 200), more=st.integers(0, 200),
)  # fmt: skip
def test_the_more_run_the_longer_they_take(
    beats: list[tuple[float, float]], seconds: float, running: int, more: int
) -> None:
    """Of the same begins: never shorter than what is known, nor longer than what is looked at."""
    now, seen = Instant(T0 + len(beats)), told(*beats, begins=True)
    one = seen.at_least(seconds, running, now)
    assert seconds <= one <= max(seconds, SPAN)
    assert seen.at_least(seconds, running + more, now) >= one
