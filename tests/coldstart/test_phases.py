"""The timeline of a cold start."""

from __future__ import annotations

import pytest

from coldstart.core.phases import current, duration, durations, longest, timeline
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


@pytest.mark.parametrize(
    ("spans", "expected"),
    [([], None), ([SPAWN, LOAD, WARMUP], Phase.LOAD), ([span(Phase.SPAWN, 1, 2), span(Phase.LOAD, 2, 3)], Phase.SPAWN)],
    ids=["none", "longest", "first-of-equals"],
)
def test_longest(spans: list[PhaseSpan], expected: Phase | None) -> None:
    """Which phase to make shorter first."""
    assert longest(spans, NOW) is expected


def test_the_current_phase_is_the_open_one() -> None:
    """None when the start is over or has not begun."""
    assert current([SPAWN, LOAD, WARMUP]) is WARMUP
    assert current([SPAWN, LOAD]) is None


@pytest.mark.parametrize(
    ("arrived_at", "placed_at", "spans", "expected"),
    [
        (100, None, (), (span(Phase.HOLD, 100),)),
        (100, 101, (SPAWN, LOAD), (span(Phase.HOLD, 100, 101), span(Phase.PLACE, 101, 102), SPAWN, LOAD)),
        (100, 102, (SPAWN,), (span(Phase.HOLD, 100, 102), SPAWN)),
        (100, None, (SPAWN,), (span(Phase.HOLD, 100, 102), SPAWN)),
        (104, 101, (SPAWN, LOAD), (span(Phase.LOAD, 104, 110),)),
        (111, 101, (SPAWN, LOAD, WARMUP), (span(Phase.WARMUP, 111),)),
        (
            100,
            101,
            (span(Phase.HOLD, 99, 100.2), SPAWN),
            (span(Phase.HOLD, 100, 100.2), span(Phase.PLACE, 101, 102), SPAWN),
        ),
    ],
    ids=["nothing", "whole", "placed-when-spawned", "place-unknown", "woken-by-another", "nearly-there", "reported"],
)
def test_timeline(
    arrived_at: float, placed_at: float | None, spans: tuple[PhaseSpan, ...], expected: tuple[PhaseSpan, ...]
) -> None:
    """Hold and place are put before the replica's own phases; what was over before the arrival is left out."""
    placed = None if placed_at is None else Instant(placed_at)
    assert timeline(Instant(arrived_at), placed, spans) == expected


def test_a_timeline_has_no_gap_from_arrival_to_ready() -> None:
    """Its phases add up to what the request waited."""
    whole = timeline(Instant(100.0), Instant(101.0), (SPAWN, LOAD, WARMUP))
    assert sum(durations(whole, NOW).values()) == pytest.approx(NOW - 100.0)
