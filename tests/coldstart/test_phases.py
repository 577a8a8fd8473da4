"""The phases of a cold start."""

from __future__ import annotations

import pytest

from coldstart.core.phases import beside_fetch, current, duration, durations, one_by_one
from events.types.replicas import Phase, PhaseSpan
from events.units import Instant


def span(phase: Phase, started_at: float, ended_at: float | None = None) -> PhaseSpan:
    return PhaseSpan(phase=phase, started_at=started_at, ended_at=ended_at)


SPAWN, LOAD, WARMUP = span(Phase.SPAWN, 102, 103), span(Phase.LOAD, 103, 110), span(Phase.WARMUP, 110)
NOW = Instant(112.0)


def test_durations_go_by_phase_in_order() -> None:
    """A phase that goes on counts until now; one that came twice counts twice."""
    assert durations([WARMUP, LOAD, SPAWN, span(Phase.SPAWN, 100, 100.5)], NOW) == {
        Phase.SPAWN: 1.5, Phase.LOAD: 7.0, Phase.WARMUP: 2.0,
    }  # fmt: skip
    assert list(durations([WARMUP, SPAWN], NOW)) == [Phase.SPAWN, Phase.WARMUP]


def test_a_span_from_a_clock_ahead_is_not_negative() -> None:
    """An adapter's clock may be ahead of the reader's."""
    assert duration(span(Phase.LOAD, 200), NOW) == 0.0


def test_the_current_phase_is_the_open_one() -> None:
    """None when the start is over or has not begun."""
    assert current([SPAWN, LOAD, WARMUP]) is WARMUP
    assert current([SPAWN, LOAD]) is None


FETCH = span(Phase.FETCH, 100, 105)
OVERLAPS = [
    ("none", [span(Phase.FETCH, 100, 102), SPAWN, LOAD], [2.0, 1.0, 7.0]),
    ("a spawn within the fetch", [FETCH, span(Phase.SPAWN, 101, 104), span(Phase.LOAD, 105, 106)], [5.0, 0.0, 1.0]),
    ("a spawn that outlasts it", [FETCH, span(Phase.SPAWN, 101, 107), span(Phase.LOAD, 107, 108)], [5.0, 2.0, 1.0]),
    ("nothing", [], []),
]  # fmt: skip


@pytest.mark.parametrize(("spans", "seconds"), [row[1:] for row in OVERLAPS], ids=[row[0] for row in OVERLAPS])
def test_one_by_one_they_add_up_to_the_start(spans: list[PhaseSpan], seconds: list[float]) -> None:
    """Time in which two go on is the first one's; no span is turned around."""
    cut = one_by_one(spans)
    assert [duration(one, NOW) for one in cut] == seconds
    assert all(one.ended_at is not None and one.started_at <= one.ended_at for one in cut)


def test_what_goes_on_leaves_nothing_to_what_began_after_it() -> None:
    """While the fetch goes on, the spawn beside it is no wait of its own; and the fetch is the current phase."""
    going_on = [span(Phase.FETCH, 100), span(Phase.SPAWN, 101)]
    assert one_by_one(going_on) == (going_on[0],)
    assert current(going_on) is going_on[0]


@pytest.mark.parametrize(
    ("spans", "beside"),
    [
        ([FETCH, span(Phase.SPAWN, 105, 106)], False),
        ([FETCH, span(Phase.SPAWN, 101, 102), span(Phase.SPAWN, 105, 106)], True),
        ([span(Phase.FETCH, 100), span(Phase.SPAWN, 101)], True),
        ([SPAWN, LOAD], False),
    ],
)
def test_whether_a_spawn_was_beside_the_fetch(spans: list[PhaseSpan], beside: bool) -> None:
    """It began before the fetch had ended."""
    assert beside_fetch(spans) is beside
