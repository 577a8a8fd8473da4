"""A trace of requests out of a relume's own log: from the windows that its gateways told.

A window counts arrivals and adds up running time; when within it each request came, and how long each took, it does not
say. Arrivals are spread evenly over their window (a second), and all requests of a model take as long as the mean, and
have their first byte when the mean has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from deploy.simulation.reading import BadTrace
from deploy.simulation.request_files import REQUESTS_MOST, SECONDS_MOST, whole
from deploy.simulation.requests import RequestTrace, Rows

WINDOW: Final = "relume.request.window.v1"


@dataclass(frozen=True, slots=True)
class OwnPast:
    """What gateways told. `seconds`: how long a request took from when it had a slot; `first`: to its first byte; None:
    nothing was told of that."""

    trace: RequestTrace
    seconds: float
    first: float | None


def read_windows(events: Iterable[Mapping[str, Any]], model: str) -> OwnPast:
    """Of CloudEvents, those that are windows of this model. Raises BadTrace when nobody asked."""
    newest: dict[tuple[str, float], Mapping[str, Any]] = {}
    for event in events:
        data = event.get("data")
        if event.get("type") == WINDOW and isinstance(data, dict) and data.get("model") == model:
            newest[str(event.get("source")), float(data["startedAt"])] = data  # one that has grown replaces the earlier
    windows = [one for one in newest.values() if one.get("arrivals", 0) > 0]
    if not windows:
        raise BadTrace(f"nobody has asked for {model} in what the log still has")
    if sum(int(one["arrivals"]) for one in windows) > REQUESTS_MOST:
        raise BadTrace(f"the log tells of more than {REQUESTS_MOST} requests to {model}, at most so many are replayed")
    finishes = sum(float(one.get("finishes", 0)) for one in newest.values())
    running = sum(float(one.get("runningSeconds", 0.0)) for one in newest.values())
    if not 0.0 <= running <= SECONDS_MOST * max(1.0, finishes):
        raise BadTrace(f"by the log the requests to {model} took {running:g} s in all, which cannot be")
    if not finishes:
        raise BadTrace(f"no request to {model} has ended in what the log still has, so none can be replayed")
    rows = Rows.empty()
    for one in windows:
        begin, end, count = float(one["startedAt"]), float(one["endedAt"]), int(one["arrivals"])
        for at in range(count):
            rows.add(begin + (end - begin) * (at + 0.5) / count, model, (0, 0), running / finishes)
    return OwnPast(whole(rows, f"the log of {model}"), running / finishes, _first(newest.values(), running / finishes))


def _first(windows: Iterable[Mapping[str, Any]], seconds: float) -> float | None:
    """Seconds from a slot to the first byte, on average: gateways count it from the arrival, and the wait beside it."""
    totals = {"firstByte": [0.0, 0.0], "held": [0.0, 0.0]}
    for one in windows:
        for name, total in totals.items():
            told = one.get(name) or {}
            total[0] += float(told.get("sum", 0.0))
            total[1] += float(told.get("count", 0))
    (first, answers), (held, slots) = totals["firstByte"], totals["held"]
    if not answers or not isfinite(first) or not isfinite(held):
        return None
    return min(seconds, max(0.0, first / answers - (held / slots if slots else 0.0)))
