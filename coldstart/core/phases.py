"""The timeline of a cold start: its phases as spans of time, how long each took, which one was the longest."""

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


def longest(spans: Sequence[PhaseSpan], now: Instant) -> Phase | None:
    """The phase that took most, the earlier one of equals; None without phases."""
    by_phase = durations(spans, now)
    return max(by_phase, key=by_phase.__getitem__, default=None)


def current(spans: Sequence[PhaseSpan]) -> PhaseSpan | None:
    """The phase that goes on: the last one without an end."""
    return next((span for span in reversed(spans) if span.ended_at is None), None)


def timeline(arrived_at: Instant, placed_at: Instant | None, spans: Sequence[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """The whole cold start as the request lived it: `hold` and `place` from its arrival, then the replica's phases.

    `placed_at`: when the replica got its place (its `created_at`); None while it has none, then `hold` goes on. Phases
    that the adapter itself reported as hold or place stand as they are. A replica that was on its way before the
    request came (another request woke it) is shown from the arrival on: what was over by then did not cost this one.
    """
    reported = {span.phase for span in spans}
    begun = min((span.started_at for span in spans if span.phase not in (Phase.HOLD, Phase.PLACE)), default=None)
    decided = placed_at if placed_at is not None else begun
    before: list[PhaseSpan] = []
    if Phase.HOLD not in reported and (decided is None or decided > arrived_at):
        before.append(PhaseSpan(phase=Phase.HOLD, started_at=arrived_at, ended_at=decided))
    if Phase.PLACE not in reported and decided is not None and begun is not None:
        started_at = max(arrived_at, decided)
        if begun > started_at:
            before.append(PhaseSpan(phase=Phase.PLACE, started_at=started_at, ended_at=begun))
    lived = [*before, *(cut for span in spans if (cut := _since(span, arrived_at)) is not None)]
    return tuple(sorted(lived, key=lambda span: span.started_at))


def _since(span: PhaseSpan, instant: Instant) -> PhaseSpan | None:
    if span.ended_at is not None and span.ended_at <= instant:
        return None
    if span.started_at >= instant:
        return span
    return PhaseSpan(phase=span.phase, started_at=instant, ended_at=span.ended_at)
