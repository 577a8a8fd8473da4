"""What a job's seat remembers, whatever clock wrote it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from events.units import Instant, Seconds
from preemption.core.lending.seat import JobSeat
from preemption.core.reclaim.pricing import HOUR

NOW = Instant(1_000_000.0)


@given(st.lists(st.integers(-20_000, 20_000), max_size=8, unique=True), st.integers(0, 7200))
def test_times_of_a_clock_that_was_ahead_count_for_an_hour_at_most(offsets: list[int], later: int) -> None:
    """Whenever a job is said to have yielded: an hour after it was first looked at nothing counts any more, nothing is
    ever in the future, and what did lie within the last hour counts once each."""
    seat = JobSeat("tune")
    for one in offsets:
        seat.had_to_yield(Instant(NOW + one), "")
    assert seat.recent(NOW) == sum(one > -HOUR for one in offsets)
    assert all(NOW - HOUR < at <= NOW for at in seat.yields(NOW))
    after = Instant(NOW + Seconds(later))
    expected = sum(min(one, 0) + HOUR > later for one in offsets)
    assert seat.recent(after) == expected
    assert later < HOUR or not expected
