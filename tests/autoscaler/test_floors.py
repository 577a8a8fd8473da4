"""What activations ask for: a staircase with ends, and one that waits to be ready."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.floors import FLOORS_MOST, START_LEAST, START_MOST, Floor, Floors, start_within
from events.units import Instant, Seconds
from tests.support.autoscaling import T0

KEEP = Seconds(5.0)


def at(second: float) -> Instant:
    """An instant of the test."""
    return Instant(T0 + second)


class TestFloors:
    """What activations ask for, until an end or until it is ready."""

    def test_a_staircase(self) -> None:
        """The highest that is still asked for; covered ones are dropped."""
        floors = Floors()
        assert floors.now(at(0)) == Floor()
        floors.ask(1, at(100), at(0))
        floors.ask(5, at(10), at(0))
        floors.ask(1, at(50), at(0))
        floors.ask(3, at(20), at(0))
        seen = [floors.now(at(second)) for second in (0, 10, 20, 99, 100)]
        assert seen == [Floor(5, at(10)), Floor(3, at(20)), Floor(1, at(100)), Floor(1, at(100)), Floor()]

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), max_size=FLOORS_MOST))
    def test_it_is_the_largest_that_still_stands(self, asked: list[tuple[int, int]]) -> None:
        """The same as looking through all of them."""
        floors = Floors()
        for replicas, until in asked:
            floors.ask(replicas, at(until), at(0))
        for second in range(0, 61, 5):
            standing = [replicas for replicas, until in asked if until > second]
            assert floors.now(at(second)).replicas == max(standing, default=0)

    def test_they_are_bounded(self) -> None:
        """The shortest makes room."""
        floors = Floors()
        for number in range(50):
            floors.ask(50 - number, at(number + 1), at(0))
        assert floors.now(at(0)) == Floor(FLOORS_MOST, at(43))

    @pytest.mark.parametrize(("ready", "failures", "left"), [
        pytest.param(1, 0, Floor(2, at(900), opened=True), id="one of two: waits on"),
        pytest.param(2, 0, Floor(2, at(13)), id="ready: the keep-alive from now"),
        pytest.param(9, 0, Floor(2, at(13)), id="more than ready"),
        pytest.param(0, 1, Floor(2, at(900), opened=True), id="a failure of before it was asked for"),
        pytest.param(0, 2, Floor(2, at(13)), id="a start failed since: the keep-alive from now"),
    ])  # fmt: skip
    def test_what_ends_the_wait(self, ready: int, failures: int, left: Floor) -> None:
        """Asked for at 0, with one failed start by then; at 8 this is seen."""
        floors = Floors()
        floors.open(2, at(900), at(0), 1)
        floors.settle(ready, failures, at(8), KEEP)
        assert floors.now(at(8)) == left

    def test_the_wait_is_bounded(self) -> None:
        """What never is ready ends; what is ready after that revives nothing."""
        floors = Floors()
        floors.open(2, at(60), at(0), 0)
        floors.settle(1, 0, at(59), KEEP)
        assert floors.now(at(59)).replicas == 2
        floors.settle(2, 0, at(60), KEEP)
        assert floors.now(at(60)) == Floor()

    def test_each_waits_for_its_own_number(self) -> None:
        """The one is ready and ends, the three are waited for; the higher one is told, then what is left."""
        floors = Floors()
        floors.open(3, at(60), at(0), 0)
        floors.open(1, at(70), at(10), 0)
        floors.ask(2, at(80), at(10))
        floors.settle(1, 0, at(20), KEEP)
        seen = [floors.now(at(second)) for second in (20, 60, 80)]
        assert seen == [Floor(3, at(60), opened=True), Floor(2, at(80)), Floor()]

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), max_size=FLOORS_MOST))
    def test_open_ones_are_the_largest_that_still_stands(self, asked: list[tuple[int, int]]) -> None:
        """As for those with an end."""
        floors = Floors()
        for replicas, until in asked:
            floors.open(replicas, at(until), at(0), 0)
        for second in range(0, 61, 5):
            standing = [replicas for replicas, until in asked if until > second]
            assert floors.now(at(second)).replicas == max(standing, default=0)

    def test_what_a_decision_knew_of(self) -> None:
        """It has the keep-alive from when it was asked for; what came later waits on."""
        floors = Floors()
        floors.open(2, at(60), at(0), 0)
        floors.open(1, at(70), at(4), 0)
        floors.settle_until(at(3), KEEP)
        assert [floors.now(at(second)) for second in (4, 5)] == [Floor(2, at(5)), Floor(1, at(70), opened=True)]

    def test_open_ones_are_bounded(self) -> None:
        """The shortest makes room, and whoever repeats itself takes none."""
        floors = Floors()
        for number in range(50):
            floors.open(50 - number, at(number + 1), at(0), 0)
        assert floors.now(at(0)) == Floor(FLOORS_MOST, at(43), opened=True)
        assert len(floors._opened) == FLOORS_MOST


@pytest.mark.parametrize(("expected", "most"), [
    pytest.param(None, START_MOST, id="no start was seen"),
    pytest.param(0.3, START_LEAST, id="quick"),
    pytest.param(100.0, 200.0, id="twice as long as expected"),
    pytest.param(1e6, START_MOST, id="never longer"),
])  # fmt: skip
def test_how_long_a_start_may_take(expected: float | None, most: float) -> None:
    """By what is expected, within bounds."""
    assert start_within(None if expected is None else Seconds(expected)) == most
