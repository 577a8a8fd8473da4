"""What a replica carries and how late its answers are, in spans of ten seconds: `capacity` learns from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Final, NamedTuple

from autoscaler.core.burning import GAMMA, bucket_within, late
from autoscaler.core.capacity import Evidence
from autoscaler.core.grown import SOURCES_MOST, Grown
from autoscaler.core.policy import Objective, Promised
from events.types.metrics import ReplicaMetrics
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from events.units import Instant

SPAN: Final = 10.0
"""Seconds of a span, on a grid of the log's time."""

SPANS_MOST: Final = 12
"""Spans that are remembered: answers that take up to two minutes are laid to the concurrency that they met."""

STILL: Final = 1.1
"""Nothing is told while the ready replicas change by more than a tenth: answers of before and after are mixed."""

BUCKET_MOST: Final = bucket_within(1e6)
"""Gateways put all that is longer into this bucket; others may tell of higher ones."""

COUNT_MOST: Final = 1e12
"""Answers of ten seconds that are believed. A record of 2^63 and more could not be read back."""

REPLICAS_MOST: Final = 256
"""Replicas whose own counters are remembered."""


@dataclass(slots=True)
class _Span:
    """What has gathered in one span."""

    index: int
    answers: list[float]
    late: list[float]
    running: float = 0.0
    covered: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    counted: float = 0.0
    held_sum: float = 0.0
    held_count: float = 0.0
    held: float = 0.0
    tokens: float = 0.0
    engine_tokens: float = 0.0
    engine_seconds: float = 0.0
    least_ready: int = 0
    most_ready: int = 0


class _Past(NamedTuple):
    """What is kept of a span that is over. `carried`: requests at a time on a ready replica, None: nothing came."""

    number: int
    carried: float | None
    held: float
    least_ready: int
    most_ready: int


class Serving:
    """Of one model with objectives of latency. Give it windows, and what engines say of themselves."""

    __slots__ = ("_counters", "_grown", "_limits", "_nothing", "_past", "_revision", "_span", "_told", "objectives")

    def __init__(self, objectives: tuple[Objective, ...]) -> None:
        self.objectives = objectives
        self._limits = tuple(one.within for one in objectives)
        self._grown = Grown()
        self._span: _Span | None = None
        self._past: deque[_Past] = deque(maxlen=SPANS_MOST)
        self._told: Evidence | None = None
        self._counters: dict[str, tuple[Instant, float]] = {}
        self._revision = 0
        self._nothing = (0.0, 0.0) * len(objectives)

    def window(self, source: str, window: RequestWindow, ready: int, at: Instant) -> None:
        """Fold a window, while so many replicas are ready. Another revision begins anew."""
        if window.revision != self._revision:
            self._revision, self._span, self._told = window.revision, None, None
            self._past.clear()
        span = self._at(at, ready)
        if window.held.count:
            span.held = max(span.held, _longest(window.held))
        new = self._grown.since(source, window, self._counts(window))
        span.running += new[0]
        if source in span.covered or len(span.covered) < SOURCES_MOST:
            span.covered[source] = span.covered.get(source, 0.0) + new[1]
        if not any(new[2:]):
            return
        span.tokens += new[2]
        span.held_sum, span.held_count = span.held_sum + new[3], span.held_count + new[4]
        span.seconds, span.counted = span.seconds + new[5], span.counted + new[6]
        for index in range(len(self._limits)):
            span.answers[index] += new[7 + 2 * index]
            span.late[index] += new[8 + 2 * index]

    def metrics(self, told: ReplicaMetrics, at: Instant) -> None:
        """What an engine says of itself: its counter of tokens."""
        if told.tokens_out_total is None or self._span is None or told.revision != self._revision:
            return
        was = self._counters.pop(told.replica, None)
        if len(self._counters) >= REPLICAS_MOST:
            del self._counters[next(iter(self._counters))]
        self._counters[told.replica] = (at, told.tokens_out_total)
        if was is not None and at > was[0] and told.tokens_out_total >= was[1]:
            self._span.engine_tokens += told.tokens_out_total - was[1]
            self._span.engine_seconds += at - was[0]

    def measure(self, now: Instant) -> Evidence | None:
        """The newest span that is over; None: there is none, or it proves nothing."""
        if self._span is not None and floor(now / SPAN) > self._span.index:
            self._close(self._span)
        return self._told

    def _counts(self, window: RequestWindow) -> tuple[float, ...]:
        """What a window tells. (Most windows tell of no answer: what is late is then not looked for.)"""
        sketch = self._judged(window, 0)
        if not (window.first_byte.count or window.total.count):
            length, waits = _length(window), window.held
            return (window.running_seconds, length, float(window.tokens_out), waits.sum, float(waits.count), 0.0, 0.0,
                    *self._nothing)  # fmt: skip
        counts = [
            window.running_seconds, _length(window), float(window.tokens_out), window.held.sum,
            float(window.held.count), sketch.sum, float(sketch.count),
        ]  # fmt: skip
        held: float | None = None
        for index, within in enumerate(self._limits):
            sketch = self._judged(window, index)
            if not sketch.count:
                counts += (0.0, 0.0)
                continue
            if held is None:
                held = max(_longest(window.held), max((one.held for one in self._past), default=0.0))
            counts += (float(sketch.count), float(late(sketch, bucket_within(within + held))))
        return tuple(counts)

    def _judged(self, window: RequestWindow, index: int) -> Sketch:
        return window.first_byte if self.objectives[index].of is Promised.FIRST else window.total

    def _at(self, at: Instant, ready: int) -> _Span:
        index = floor(at / SPAN)
        span = self._span
        if span is not None and index > span.index:
            self._close(span)
            span = self._span
        if span is None:
            several = len(self._limits)
            span = self._span = _Span(index, [0.0] * several, [0.0] * several, least_ready=ready, most_ready=ready)
        span.least_ready, span.most_ready = min(span.least_ready, ready), max(span.most_ready, ready)
        return span

    def _close(self, span: _Span) -> None:
        """The span is over: tell what it proves."""
        self._span, self._told = None, None
        covered = max(span.covered.values(), default=0.0)
        carried = span.running / covered / span.most_ready if covered and span.most_ready else None
        self._past.append(_Past(span.index, carried, span.held, span.least_ready, span.most_ready))
        seconds = span.seconds / span.counted if span.counted else None
        back = min(SPANS_MOST, 2 + int((seconds or 0.0) / SPAN))
        around = [one for one in self._past if one.number > span.index - back]
        least, most = min(one.least_ready for one in around), max(one.most_ready for one in around)
        if not least or most > STILL * least or not covered or seconds is None:
            return
        known = [one.carried for one in around if one.carried is not None]
        waited = span.held_sum / span.held_count if span.held_count else 0.0
        tokens: float | None = None
        if span.engine_seconds:
            tokens = span.engine_tokens / span.engine_seconds
        elif span.tokens:
            tokens = span.tokens / covered / most
        self._told = Evidence(
            ended_at=Instant((span.index + 1) * SPAN), concurrency=round(sum(known) / len(known), 3),
            answers=_counts(span.answers), late=_counts(span.late),
            seconds=max(0.0, seconds - waited), held=max(one.held for one in around), tokens=tokens, ready=most,
        )  # fmt: skip


def _counts(told: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers that a record can carry, whatever gateways tell."""
    return tuple([int(min(one, COUNT_MOST)) for one in told])


def _length(window: RequestWindow) -> float:
    """Seconds; of a gateway whose clock went back, none."""
    return max(0.0, window.ended_at - window.started_at)


def _longest(held: Sketch) -> float:
    """The most that any of them can have waited."""
    return 0.0 if not held.buckets or not held.sum else float(GAMMA ** min(BUCKET_MOST, held.buckets[-1][0]))
