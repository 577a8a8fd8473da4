"""`hybrid-histogram`: keep-alive and prewarm from a histogram of idle times.

Shahrad et al., "Serverless in the Wild", USENIX ATC 2020: bins of a minute over four hours; the 5th percentile of idle
times, less 10 %, is when to load again, and the 99th, plus 10 %, when to give up. A histogram whose counts vary little
(coefficient of variation below 2) says nothing: everything is kept for four hours. An app whose idle times mostly lie
beyond the histogram is forecast by itself; there the paper fits ARIMA, and we take the mean of the last idle times (in
a day there are at most six).

The paper has one container an app. Here what was needed when the app was last busy is held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt

BINS = 240
REPRESENTATIVE = 2.0
HEAD, TAIL = 0.05, 0.99
MARGIN = 0.10
BEYOND_MOST = 0.5
FORECAST_EARLY, FORECAST_KEEP = 0.85, 0.30
"""Load at 0.85 times the forecast idle time, and keep for 0.30 times it."""
REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """Of an app: since when it idles (None: never busy), what it needed last, and how long it idled before, in grains.

    `counts`: of idle times by bin; `beyond`: the last idle times that no bin holds, and how many there were.
    """

    idle: int | None = None
    needed: int = 0
    counts: tuple[int, ...] = ()
    beyond: tuple[int, ...] = ()
    beyond_count: int = 0
    window: tuple[float, float] = (0.0, float(BINS))


@dataclass(frozen=True, slots=True)
class HybridHistogram:
    """See the module."""

    def begin(self) -> IdleTimes:
        """Never busy."""
        return IdleTimes()

    def after(self, state: IdleTimes, needed: int) -> IdleTimes:
        """Count an idle time when it ends."""
        if not needed:
            return state if state.idle is None else replace(state, idle=state.idle + 1)
        if state.idle is None:
            return replace(state, idle=0, needed=needed)
        counts, beyond, beyond_count = state.counts, state.beyond, state.beyond_count
        if state.idle < BINS:
            counted = list(counts) or [0] * BINS
            counted[state.idle] += 1
            counts = tuple(counted)
        else:
            beyond, beyond_count = (*beyond, state.idle)[-REMEMBERED:], beyond_count + 1
        return IdleTimes(0, needed, counts, beyond, beyond_count, load_window(counts, beyond, beyond_count))

    def hold(self, state: IdleTimes) -> int:
        """What it needed last, within the window after it was last busy."""
        if state.idle is None:
            return 0
        load_at, unload_at = state.window
        return state.needed if load_at < state.idle + 1 and state.idle < unload_at else 0


def load_window(counts: tuple[int, ...], beyond: tuple[int, ...], beyond_count: int) -> tuple[float, float]:
    """When to load again and when to give up, in grains after the last busy one."""
    known = sum(counts)
    if beyond_count / (beyond_count + known) >= BEYOND_MOST:
        forecast = sum(beyond) / len(beyond)
        return FORECAST_EARLY * forecast, (FORECAST_EARLY + FORECAST_KEEP) * forecast
    mean = known / BINS
    spread = sqrt(max(0.0, sum(count * count for count in counts) / BINS - mean * mean)) / mean
    if spread < REPRESENTATIVE:
        return 0.0, float(BINS)
    return _bin(counts, HEAD * known) * (1 - MARGIN), (_bin(counts, ceil(TAIL * known)) + 1) * (1 + MARGIN)


def _bin(counts: tuple[int, ...], wanted: float) -> int:
    """The first bin up to which so many were counted."""
    so_far = 0
    for at, count in enumerate(counts):
        so_far += count
        if count and so_far >= wanted:
            return at
    return BINS - 1
