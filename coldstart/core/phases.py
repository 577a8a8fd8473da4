"""The phases of a cold start as spans of time: how long each took, and which one goes on."""

from __future__ import annotations

from collections.abc import Sequence

from events.types.replicas import Phase, PhaseSpan
from events.units import Instant, Seconds

ORDER: tuple[Phase, ...] = tuple(Phase)
"""The phases in the order in which a cold start goes through them."""


def duration(span: PhaseSpan, now: Instant) -> Seconds:
    """How long a phase took, or has taken until `now` while it goes on. Never negative."""
    ended_at = now if span.ended_at is None else span.ended_at
    return Seconds(max(0.0, ended_at - span.started_at))


def durations(spans: Sequence[PhaseSpan], now: Instant) -> dict[Phase, Seconds]:
    """Seconds by phase, in the order of the phases; a phase that was gone through twice counts twice."""
    sums: dict[Phase, float] = {}
    for span in spans:
        sums[span.phase] = sums.get(span.phase, 0.0) + duration(span, now)
    return {phase: Seconds(sums[phase]) for phase in ORDER if phase in sums}


def current(spans: Sequence[PhaseSpan]) -> PhaseSpan | None:
    """The phase that goes on: the last one without an end."""
    return next((span for span in reversed(spans) if span.ended_at is None), None)
