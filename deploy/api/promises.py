"""What the owner of a model promised (`spec.slo`) beside what was measured: counts of requests that kept each promise.

Counted from windows, since this process began; a promise that changes is counted anew. Latencies come from sketches, so
a request within 5 % of its bound may be counted on the wrong side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from deploy.api.shapes import ObjectiveStatus
from deploy.spec.model import SloSpec
from deploy.spec.policy import Percentiles
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from events.units import format_duration
from runtime.core.sketch import value_of

AVAILABILITY = "availability"


@dataclass(frozen=True, slots=True)
class Promise:
    """`share` of the requests (0 to 1) keep it: within `seconds`, or (None) answered without an error of ours."""

    name: str
    share: float
    seconds: float | None = None


def promises_of(spec: Mapping[str, object]) -> tuple[Promise, ...]:
    """The promises of a declaration; none when it has none, or none that this version understands."""
    try:
        slo = SloSpec.model_validate(spec.get("slo") or {}).resolve()
    except ValidationError:  # declared by another version: what it promised is not ours to judge
        return ()
    promises = [*_percentiles("timeToFirstToken", slo.time_to_first_token), *_percentiles("latency", slo.latency)]
    if slo.availability is not None:
        promises.append(Promise(AVAILABILITY, slo.availability))
    return tuple(promises)


def _percentiles(name: str, promised: Percentiles) -> Iterator[Promise]:
    for quantile, seconds in promised:
        yield Promise(f"{name}.p{quantile * 100:g}", quantile, seconds)


@dataclass(slots=True)
class Kept:
    """How many requests were counted for a promise, and how many of them kept it."""

    promise: Promise
    requests: int = 0
    kept: int = 0

    def grow(self, new: RequestWindow, old: RequestWindow | None) -> None:
        """Count what `new` holds more than `old`, which it replaces."""
        for window, sign in ((new, 1), (old, -1)):
            if window is not None:
                requests, kept = self._count(window)
                self.requests += sign * requests
                self.kept += sign * kept

    def _count(self, window: RequestWindow) -> tuple[int, int]:
        seconds = self.promise.seconds
        if seconds is None:
            return window.finishes + window.failures + window.refusals, window.finishes
        sketch: Sketch = window.first_byte if self.promise.name.startswith("timeToFirstToken") else window.total
        within = sum(count for bucket, count in sketch.buckets if value_of(bucket) <= seconds)
        return sketch.count, within

    def status(self) -> ObjectiveStatus:
        """As the API shows it."""
        measured = self.kept / self.requests if self.requests else None
        return ObjectiveStatus(
            name=self.promise.name, promised=self.promise.share, seconds=self.promise.seconds, requests=self.requests,
            measured=None if measured is None else round(measured, 6),
            kept=None if measured is None else measured >= self.promise.share,
        )  # fmt: skip


@dataclass(slots=True)
class Promises:
    """All promises of one model."""

    kept: tuple[Kept, ...] = field(default=())

    def declare(self, spec: Mapping[str, object]) -> None:
        """Follow a declaration: a promise that is still the same goes on."""
        before = {one.promise: one for one in self.kept}
        self.kept = tuple(before.get(promise) or Kept(promise) for promise in promises_of(spec))

    def grow(self, new: RequestWindow, old: RequestWindow | None) -> None:
        """Count what `new` holds more than `old`."""
        for one in self.kept:
            one.grow(new, old)

    def copy(self) -> Promises:
        """As they stand now."""
        return Promises(tuple(Kept(one.promise, one.requests, one.kept) for one in self.kept))

    def statuses(self) -> list[ObjectiveStatus]:
        """As the API shows them."""
        return [one.status() for one in self.kept]


def sentence(status: ObjectiveStatus) -> str:
    """One promise for people."""
    bound = (
        "answered without an error of ours" if status.seconds is None else f"within {format_duration(status.seconds)}"
    )
    promise = f"Promised: {status.name}, {_percent(status.promised)} of requests {bound}"
    if status.measured is None:
        return f"{promise}; none was counted since this process began."
    verdict = "kept" if status.kept else "broken"
    noun = "request" if status.requests == 1 else "requests"
    return f"{promise}; {verdict}: {_percent(status.measured)} of {status.requests} {noun}."


def _percent(share: float) -> str:
    return f"{share * 100:.6g} %"
