"""The phases of a cold start."""

from __future__ import annotations

from coldstart.core.phases import current, duration, durations
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
