"""When something is needed next, by the idle times so far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.forecast.idle import BELIEVED, HORIZONS, HOUR, coming, gaps
from events.units import Seconds

MINUTE = Seconds(60.0)


def bits(pattern: str) -> int:
    """The oldest minute first."""
    return int(pattern, 2)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("0", []), ("1", [0]), ("100", [2]), ("11", [0, 0]), ("1001000", [2, 3]), ("000101", [1, 0])],
)
def test_gaps(pattern: str, found: list[int]) -> None:
    """Between each two minutes that were needed, and the one that goes on; what was before the first is not known."""
    assert gaps(bits(pattern)) == found


def test_the_horizons_have_an_hour() -> None:
    """Of minutes."""
    assert HORIZONS[HOUR] == 60


def test_a_rhythm_is_foreseen_past_the_coming_minute() -> None:
    """Asked each half hour, for ten hours, last ten minutes ago: hardly now, likely within the hour, not within five
    minutes; and held for some twenty minutes until then."""
    ahead = coming(bits(("1" + "0" * 29) * 20 + "1" + "0" * 10), 0.001, MINUTE)
    within = {one.within / 60: one for one in ahead}
    assert within[1].chance == 0.001
    assert within[5].chance < 0.01
    assert within[60].chance > 0.9
    assert 18 * 60 < within[60].held < 25 * 60


def test_where_no_quiet_lasted_so_long_the_minute_speaks() -> None:
    """Then each later minute is as likely as the coming one."""
    ahead = coming(bits("11" + "0" * 100), 0.01, MINUTE)
    for one in ahead:
        minutes = one.within / 60
        assert one.chance == pytest.approx(1 - 0.99**minutes)
        assert one.held == pytest.approx(60 * sum(0.99**at for at in range(int(minutes))))


@given(st.integers(0, (1 << 200) - 1), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_it_is_a_chance_that_grows_with_time(past: int, one: float, other: float) -> None:
    """Within longer it is likelier, and held longer; never beyond the horizon. Likelier now, likelier by then, and held
    no longer."""
    low, high = (coming(past, chance, MINUTE) for chance in sorted((one, other)))
    for ahead in (low, high):
        assert [some.chance for some in ahead] == sorted(some.chance for some in ahead)
        assert [some.held for some in ahead] == sorted(some.held for some in ahead)
        assert all(0.0 <= some.chance <= 1.0 + 1e-9 and some.held <= some.within + 1e-6 for some in ahead)
    for less, more in zip(low, high, strict=True):
        assert less.chance <= more.chance + 1e-9
        assert less.held >= more.held - 1e-6


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 30))
def test_with_many_idle_times_it_is_their_share(quiet: list[int], now: int) -> None:
    """Of those that lasted longer than this one so far, how many ended by then: weighed against the minute's chance,
    which was nil here."""
    past = "".join("1" + "0" * gap for gap in quiet) + "1" + "0" * now
    longer = [gap for gap in quiet if gap > now]
    for one in coming(bits(past), 0.0, MINUTE)[1:]:
        ended = sum(gap - now < one.within / 60 for gap in longer)
        assert one.chance == pytest.approx(ended / (len(longer) + BELIEVED))
