"""The phases of a cold start as spans of time: how long each took, which one goes on, and what of it was waited for.

Spans stand in the order in which they began. They may overlap: some engines are spawned while their weights come.
"""

from __future__ import annotations

import math
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
    """The phase that goes on; of several the one that began first."""
    return next((span for span in spans if span.ended_at is None), None)


def one_by_one(spans: Sequence[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """The same without overlaps: where several went on at once, the time is that of the one that began first. Then
    spans of a start add up to its time. One that goes on leaves nothing to those that began after it."""
    cut: list[PhaseSpan] = []
    until = -math.inf
    for span in spans:
        ended_at = math.inf if span.ended_at is None else span.ended_at
        began = max(span.started_at, min(until, ended_at))
        if until < math.inf:
            cut.append(PhaseSpan(phase=span.phase, started_at=began, ended_at=span.ended_at))
        until = max(until, ended_at)
    return tuple(cut)


def beside_fetch(spans: Sequence[PhaseSpan]) -> bool:
    """Whether the engine was spawned while its weights came."""
    fetched = [span for span in spans if span.phase is Phase.FETCH]
    return any(
        span.phase is Phase.SPAWN
        and any(span.started_at < (math.inf if fetch.ended_at is None else fetch.ended_at) for fetch in fetched)
        for span in spans
    )
