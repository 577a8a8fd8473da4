"""How long each stage of a fetch was at work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.busy import Busy, Stage
from events.types.caches import FetchTimes
from events.units import Instant


def busy(*words: tuple[float, str, Stage]) -> Busy:
    """A fetch that began at 0: at these seconds something of a stage began (``+``) or ended (``-``)."""
    told = Busy(Instant(0.0))
    for at, what, stage in words:
        (told.began if what == "+" else told.ended)(stage, Instant(at))
    return told


N, D, H = Stage
ROWS = [
    ("nothing had to be fetched", [], 3.0, (3.0, 0.0, 0.0, 0.0, 0.0)),
    ("one after the other", [(1, "+", N), (4, "-", N), (4, "+", D), (6, "-", D), (6, "+", H), (7, "-", H)], 7.5,
     (1.0, 3.0, 2.0, 1.0, 0.5)),
    ("one pipeline", [(1, "+", N), (3, "-", N), (3, "+", N), (3, "+", D), (4, "+", H), (5, "-", D), (5, "-", N),
                      (6, "-", H)], 6.0, (1.0, 4.0, 2.0, 2.0, 0.0)),
    ("two side by side count once", [(0, "+", N), (1, "+", N), (3, "-", N), (5, "-", N)], 5.0,
     (0.0, 5.0, 0.0, 0.0, 0.0)),
    ("one that was broken off", [(0, "+", N), (1, "+", H), (4, "-", H)], 9.0, (0.0, 4.0, 0.0, 3.0, 5.0)),
]  # fmt: skip


@pytest.mark.parametrize(("words", "now", "seconds"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_seconds_of_each(words: list[tuple[float, str, Stage]], now: float, seconds: tuple[float, ...]) -> None:
    """Of a stage those in which at least one was at it; before and after all of them by themselves."""
    assert busy(*words).times(Instant(now)) == FetchTimes(
        **dict(zip(("prepare", "network", "disk", "digest", "publish"), seconds, strict=True))
    )


@given(st.lists(st.tuples(st.sampled_from(Stage), st.floats(0, 10), st.floats(0, 10)), max_size=20))
def test_no_stage_takes_longer_than_the_fetch(works: list[tuple[Stage, float, float]]) -> None:
    """However many are at it at once."""
    began = [(min(one, other), "+", stage) for stage, one, other in works]
    ended = [(max(one, other), "-", stage) for stage, one, other in works]
    words = sorted([*began, *ended], key=lambda word: word[:2])
    told = busy(*words).times(Instant(10.0))
    longest = 10.0 - told.prepare - told.publish + 1e-5
    assert all(0 <= seconds <= longest for seconds in (told.network, told.disk, told.digest))
