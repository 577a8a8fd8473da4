"""Counts and histograms for ``/metrics``, folded from events. Pure: `Tallies.apply` takes one event.

Counters start at zero with the process, as Prometheus expects. Names that nobody declared are not counted by model, and
a deleted model's tally goes with it, so memory is bounded by what is declared.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from coldstart.core.phases import durations
from deploy.api.promises import Promises
from deploy.api.shapes import ObjectiveStatus
from events.envelope import AnyEnvelope
from events.kinds import KINDS
from events.types.decisions import WishDecided
from events.types.letters import EventRejected
from events.types.metrics import ReplicaMetrics
from events.types.models import ModelDeclared
from events.types.phases import ColdStartFinished
from events.types.replicas import ReplicasObserved
from events.types.requests import COUNTS, RequestWindow
from events.types.shared import Sketch
from events.units import Instant
from runtime.core.sketch import value_of

TTFT_BOUNDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Buckets of time to first token: OpenTelemetry GenAI semantic conventions, and two more for cold starts."""

DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68,
)  # fmt: skip
"""Buckets of whole requests: OpenTelemetry GenAI semantic conventions, and two more."""

START_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Buckets of cold starts and their phases: from a simulated engine to a large model over a slow network."""


class Histogram:
    """Counts by upper bound, as Prometheus wants them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def grow(self, new: Sketch, old: Sketch | None) -> None:
        """Count what `new` holds more than `old`, which it replaces."""
        before = dict(old.buckets) if old else {}
        for index, count in new.buckets:
            more = count - before.get(index, 0)
            if more > 0:
                self.counts[bisect.bisect_left(self.bounds, value_of(index))] += more
        self.sum += max(0.0, new.sum - (old.sum if old else 0.0))

    def copy(self) -> Histogram:
        """As it stands now."""
        other = Histogram(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), the last one ``+Inf``."""
        total, rows = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return rows


@dataclass(slots=True)
class ModelTally:
    """One model's counts since the process began."""

    counts: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    held: Histogram = field(default_factory=lambda: Histogram(START_BOUNDS))
    first_byte: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    total: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS))
    cold_start: Histogram = field(default_factory=lambda: Histogram(START_BOUNDS))
    sla_missed: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    promises: Promises = field(default_factory=Promises)
    windows: dict[tuple[str, int], RequestWindow] = field(default_factory=dict)
    kv_cache_use: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    @property
    def touched(self) -> bool:
        """Whether anything was counted."""
        return bool(self.counts or self.decisions or self.kv_cache_use or self.cold_start.sum)

    def copy(self) -> ModelTally:
        """As it stands now, without what only the next event needs."""
        return ModelTally(
            counts=self.counts.copy(), decisions=self.decisions, held=self.held.copy(),
            first_byte=self.first_byte.copy(), total=self.total.copy(), cold_start=self.cold_start.copy(),
            sla_missed=self.sla_missed, verdicts=self.verdicts.copy(), kv_cache_use=dict(self.kv_cache_use),
            promises=self.promises.copy(),
        )  # fmt: skip


class Tallies:
    """Everything that events count up to."""

    def __init__(self, gateway_limit: int = 64) -> None:
        self.models: dict[str, ModelTally] = {}
        self.events: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[str] = Counter()
        self.phases: dict[str, Histogram] = {}
        self.rejected: Counter[str] = Counter()
        self._gateway_limit = gateway_limit

    def apply(self, envelope: AnyEnvelope) -> None:
        """Count one event."""
        data = envelope.data
        kind = KINDS.get(type(data))
        if kind is not None:
            self.events[(kind.topic, kind.full_name)] += 1
        if isinstance(data, ModelDeclared):
            self._declare(data)
        elif isinstance(data, EventRejected):
            self.rejected[data.topic] += 1
        else:
            tally = self.models.get(getattr(data, "model", ""))
            if tally is not None:
                self._of_model(tally, envelope)

    def objectives(self, model: str) -> Sequence[ObjectiveStatus]:
        """What a model promised, and whether it was kept."""
        tally = self.models.get(model)
        return tally.promises.statuses() if tally else ()

    def copy(self) -> Tallies:
        """As they stand now, for a reader in another thread; without models of which nothing happened yet."""
        other = Tallies(self._gateway_limit)
        other.models = {name: tally.copy() for name, tally in self.models.items() if tally.touched}
        other.events, other.reasons = self.events.copy(), self.reasons.copy()
        other.rejected = self.rejected.copy()
        other.phases = {name: histogram.copy() for name, histogram in self.phases.items()}
        return other

    def seed(self, envelope: AnyEnvelope) -> None:
        """Take in a state that stood in the log before this process began, without counting it."""
        data = envelope.data
        if isinstance(data, ModelDeclared):
            self._declare(data)
        elif isinstance(data, ReplicasObserved) and data.replicas:
            tally = self.models.setdefault(data.model, ModelTally())
            tally.ready = {item.replica: item.ready_at for item in data.replicas if item.ready_at is not None}

    def _declare(self, data: ModelDeclared) -> None:
        if data.deleted:
            self.models.pop(data.model, None)
        else:
            self.models.setdefault(data.model, ModelTally()).promises.declare(data.spec)

    def _of_model(self, tally: ModelTally, envelope: AnyEnvelope) -> None:
        data = envelope.data
        if isinstance(data, RequestWindow):
            self._window(tally, envelope.source, data)
        elif isinstance(data, WishDecided):
            tally.decisions += 1
            self.reasons.update(data.reasons)
        elif isinstance(data, ReplicasObserved):
            self._observed(tally, data)
        elif isinstance(data, ReplicaMetrics) and data.kv_cache_use is not None:
            if data.replica in tally.ready:
                tally.kv_cache_use[data.replica] = data.kv_cache_use
        elif isinstance(data, ColdStartFinished):
            took = max(0.0, data.first_byte_at - data.arrived_at)
            tally.cold_start.add(took)
            tally.sla_missed += took > data.sla_seconds
            if data.verdict:
                tally.verdicts[data.verdict] += 1

    def _window(self, tally: ModelTally, source: str, window: RequestWindow) -> None:
        key = (source, window.revision)
        last = tally.windows.get(key)
        old = last if last is not None and last.started_at == window.started_at else None
        for name in COUNTS:
            tally.counts[name] += max(0, getattr(window, name) - (getattr(old, name) if old else 0))
        tally.held.grow(window.held, old.held if old else None)
        tally.first_byte.grow(window.first_byte, old.first_byte if old else None)
        tally.total.grow(window.total, old.total if old else None)
        tally.promises.grow(window, old)
        if last is None and len(tally.windows) >= self._gateway_limit:
            del tally.windows[min(tally.windows, key=lambda other: tally.windows[other].ended_at)]
        tally.windows[key] = window

    def _observed(self, tally: ModelTally, data: ReplicasObserved) -> None:
        """Count the phases of each replica once, when it is first seen ready."""
        ready = {replica.replica: replica.ready_at for replica in data.replicas if replica.ready_at is not None}
        for replica in data.replicas:
            if replica.ready_at is None or tally.ready.get(replica.replica) == replica.ready_at:
                continue
            for phase, seconds in durations(replica.phases, Instant(replica.ready_at)).items():
                self.phases.setdefault(phase.value, Histogram(START_BOUNDS)).add(seconds)
        tally.ready = ready
        tally.kv_cache_use = {name: use for name, use in tally.kv_cache_use.items() if name in ready}
