"""``/metrics``: the exposition of Prometheus, made at the moment it is asked for from the board and the tallies.

Names: OpenTelemetry's GenAI metrics and vLLM's where they exist, so that dashboards made for those work; ``relume_*``
for the rest. A label ``model`` has at most `MODEL_LABELS` values; further models count together as ``_other``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from deploy.api.board import Board, items_in_breaths
from deploy.api.ports import Reading, Readings, Traffic
from deploy.api.shapes import ModelStatus
from deploy.api.tallies import Histogram, ModelTally, Tallies
from events.clock import Clock
from events.types.replicas import ReplicaState, ReplicaStatus

MODEL_LABELS: Final = 1000
"""Prometheus's own advice: a label with more than some hundreds of values hurts; declared models seldom exceed it."""

OTHER: Final = "_other"

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_COUNTERS: Final = (
    ("relume_requests_arrived", "Requests that arrived.", "model", "arrivals"),
    ("relume_requests_dispatched", "Requests that were sent to a replica.", "model", "starts"),
    ("relume_requests_finished", "Requests that ended with a whole answer.", "model", "finishes"),
    ("relume_requests_failed", "Requests that a replica failed.", "model", "failures"),
    ("relume_requests_refused", "Requests that got no slot.", "model", "refusals"),
    ("relume_requests_abandoned", "Requests whose client left.", "model", "abandoned"),
    ("relume_request_bytes", "Bytes of request bodies.", "model", "bytes_in"),
    ("relume_response_bytes", "Bytes of answers.", "model", "bytes_out"),
    ("vllm:prompt_tokens", "Tokens of prompts.", "model_name", "tokens_in"),
    ("vllm:generation_tokens", "Tokens generated.", "model_name", "tokens_out"),
    ("vllm:request_success", "Requests that ended with a whole answer.", "model_name", "finishes"),
)  # fmt: skip

_HISTOGRAMS: Final[tuple[tuple[str, str, str, Callable[[ModelTally], Histogram]], ...]] = (
    ("gen_ai_server_time_to_first_token_seconds", "Arrival to the first byte of the answer.", "gen_ai_request_model",
     lambda tally: tally.first_byte),
    ("gen_ai_server_request_duration_seconds", "Arrival to the end of the answer.", "gen_ai_request_model",
     lambda tally: tally.total),
    ("vllm:time_to_first_token_seconds", "Arrival to the first byte of the answer.", "model_name",
     lambda tally: tally.first_byte),
    ("vllm:e2e_request_latency_seconds", "Arrival to the end of the answer.", "model_name", lambda tally: tally.total),
    ("relume_hold_seconds", "Time in the hold queue.", "model", lambda tally: tally.held),
    ("relume_cold_start_seconds", "Arrival to first byte of the first request held for a start.", "model",
     lambda tally: tally.cold_start),
)  # fmt: skip


@dataclass(slots=True)
class _Sums:
    """Gauges of one label value; models that share ``_other`` add up. Unknown adds nothing."""

    values: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.values[name] = self.values.get(name, 0.0) + value


_GAUGES: Final = (
    ("vllm:num_requests_running", "Requests that hold a lease.", "model_name", "running"),
    ("vllm:num_requests_waiting", "Requests in the hold queue.", "model_name", "held"),
    ("relume_running_requests", "Requests that hold a lease.", "model", "running"),
    ("relume_held_requests", "Requests in the hold queue.", "model", "held"),
    ("relume_wish_replicas", "Replicas that the autoscaler wants.", "model", "wish"),
    ("relume_granted_replicas", "Replicas that the allocator allows.", "model", "granted"),
    ("relume_shortage_replicas", "Replicas wished for and not granted.", "model", "shortage"),
    ("relume_start_failures", "Failed starts since the last success.", "model", "failures"),
)  # fmt: skip


Families = Callable[[], Awaitable[Iterable[Metric]]]
"""Gives whole metrics, which nothing changes any more."""


class Exposition:
    """All metrics of this process."""

    def __init__(self, board: Board, tallies: Tallies, traffic: Traffic, clock: Clock) -> None:
        self._board = board
        self._tallies = tallies
        self._traffic = traffic
        self._clock = clock
        self._sources: list[Readings] = []
        self._families: list[Families] = []

    def add_source(self, source: Readings) -> None:
        """Numbers that no event tells."""
        self._sources.append(source)

    def add_families(self, families: Families) -> None:
        """Whole metrics of others."""
        self._families.append(families)

    async def text(self) -> bytes:
        """The exposition now. What changes is read on the loop; the text, megabytes with many models, in a thread."""
        labels, rows, states = _Labels(), dict[str, _Sums](), Counter[str]()
        async for item in items_in_breaths(self._board, self._traffic, self._clock):
            states[item.status.state.value] += 1
            _add_status(rows.setdefault(labels.of(item.metadata.name), _Sums()), item.status)
        readings = [reading for source in self._sources for reading in source.read()]
        more = [metric for families in self._families for metric in await families()]
        scrape = _Scrape(self._tallies.copy(), labels, rows, states, self._board.replicas(), readings, more)
        return await asyncio.to_thread(scrape.text)


@dataclass(frozen=True, slots=True, eq=False)  # the registry wants to hash it
class _Scrape(Collector):
    """What one answer is made of; nothing else changes it."""

    tallies: Tallies
    labels: _Labels
    rows: Mapping[str, _Sums]
    states: Mapping[str, int]
    replicas: Sequence[tuple[str, ReplicaStatus]]
    readings: Sequence[Reading]
    more: Sequence[Metric]

    def text(self) -> bytes:
        """The exposition, in a registry of its own: what was deleted is not there any more."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before it is collected."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family, made anew."""
        yield from self._gauges()
        yield from self._replicas()
        yield from self._requests()
        yield from self._promises()
        yield from self._decisions()
        yield from self._log()
        yield from _readings(self.readings)
        yield from self.more

    def _gauges(self) -> Iterator[Metric]:
        for metric, text, label, key in _GAUGES:
            family = GaugeMetricFamily(metric, text, labels=[label])
            for value, sums in self.rows.items():
                if key in sums.values:
                    family.add_metric([value], sums.values[key])
            yield family
        models = GaugeMetricFamily("relume_models", "Declared models by state.", labels=["state"])
        for state, count in sorted(self.states.items()):
            models.add_metric([state], count)
        yield models

    def _replicas(self) -> Iterator[Metric]:
        counts: dict[tuple[str, str], int] = {}
        for model, replica in self.replicas:
            key = (self.labels.of(model), replica.state.value)
            counts[key] = counts.get(key, 0) + 1
        family = GaugeMetricFamily("relume_replicas", "Replicas by state.", labels=["model", "state"])
        for name in sorted({model for model, _ in counts}):
            for state in ReplicaState:
                family.add_metric([name, state.value], counts.get((name, state.value), 0))
        yield family
        cache = GaugeMetricFamily("vllm:kv_cache_usage_perc", "Use of the KV cache, 0 to 1, the fullest replica.",
                                  labels=["model_name"])  # fmt: skip
        fullest: dict[str, float] = {}
        for model, tally in self.tallies.models.items():
            if tally.kv_cache_use:
                label = self.labels.of(model)
                fullest[label] = max(fullest.get(label, 0.0), *tally.kv_cache_use.values())
        for label, use in fullest.items():
            cache.add_metric([label], use)
        yield cache

    def _requests(self) -> Iterator[Metric]:
        groups: dict[str, list[ModelTally]] = {}
        for model, tally in self.tallies.models.items():
            groups.setdefault(self.labels.of(model), []).append(tally)
        for name, text, label, key in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=[label])
            for value, tallies in groups.items():
                counter.add_metric([value], sum(tally.counts[key] for tally in tallies))
            yield counter
        for name, text, label, histogram_of in _HISTOGRAMS:
            family = HistogramMetricFamily(name, text, labels=[label])
            for value, tallies in groups.items():
                merged = _merged([histogram_of(tally) for tally in tallies])
                family.add_metric([value], merged.cumulative(), merged.sum)
            yield family

    def _promises(self) -> Iterator[Metric]:
        """Of models with a label of their own: promises of different models do not add up."""
        both = ["model", "objective"]
        promised = GaugeMetricFamily("relume_slo_promised", "Share of requests that was promised, 0 to 1.", labels=both)
        bound = GaugeMetricFamily("relume_slo_seconds", "Within how long.", labels=both)
        counted = CounterMetricFamily("relume_slo_requests", "Requests counted for a promise.", labels=both)
        kept = CounterMetricFamily("relume_slo_requests_kept", "Requests that kept it.", labels=both)
        for model, tally in self.tallies.models.items():
            for one in tally.promises.kept if self.labels.of(model) != OTHER else ():
                labels = [model, one.promise.name]
                promised.add_metric(labels, one.promise.share)
                counted.add_metric(labels, one.requests)
                kept.add_metric(labels, one.kept)
                if one.promise.seconds is not None:
                    bound.add_metric(labels, one.promise.seconds)
        yield from (promised, bound, counted, kept)

    def _decisions(self) -> Iterator[Metric]:
        decisions = CounterMetricFamily("relume_decisions", "Recorded decisions.", labels=["model"])
        missed = CounterMetricFamily("relume_cold_starts_over_sla", "Cold starts that broke the promise.",
                                     labels=["model"])  # fmt: skip
        verdicts = CounterMetricFamily("relume_cold_start_verdicts", "Cold starts by what became of their promise.",
                                       labels=["model", "verdict"])  # fmt: skip
        judged: Counter[tuple[str, str]] = Counter()
        for model, tally in self.tallies.models.items():
            judged.update({(self.labels.of(model), verdict): count for verdict, count in tally.verdicts.items()})
        for (value, verdict), count in sorted(judged.items()):
            verdicts.add_metric([value, verdict], count)
        sums: dict[str, tuple[int, int]] = {}
        for model, tally in self.tallies.models.items():
            before = sums.get(self.labels.of(model), (0, 0))
            sums[self.labels.of(model)] = (before[0] + tally.decisions, before[1] + tally.sla_missed)
        for value, (made, over) in sums.items():
            decisions.add_metric([value], made)
            missed.add_metric([value], over)
        reasons = CounterMetricFamily("relume_decision_reasons", "Reasons of recorded decisions.", labels=["reason"])
        for reason, count in sorted(self.tallies.reasons.items()):
            reasons.add_metric([reason], count)
        phases = HistogramMetricFamily("relume_cold_start_phase_seconds", "Phases of starts that became ready.",
                                       labels=["phase"])  # fmt: skip
        for phase, histogram in sorted(self.tallies.phases.items()):
            phases.add_metric([phase], histogram.cumulative(), histogram.sum)
        yield from (decisions, missed, verdicts, reasons, phases)

    def _log(self) -> Iterator[Metric]:
        events = CounterMetricFamily("relume_events", "Events seen in the log.", labels=["topic", "type"])
        for (topic, kind), count in sorted(self.tallies.events.items()):
            events.add_metric([topic, kind], count)
        rejected = CounterMetricFamily("relume_events_rejected", "Events that could not be read.", labels=["topic"])
        for topic, count in sorted(self.tallies.rejected.items()):
            rejected.add_metric([topic], count)
        yield from (events, rejected)


class _Labels:
    """The first so many models that ask have a label of their own."""

    def __init__(self, limit: int = MODEL_LABELS) -> None:
        self._limit = limit
        self._own: set[str] = set()

    def of(self, model: str) -> str:
        if model in self._own:
            return model
        if len(self._own) >= self._limit:
            return OTHER
        self._own.add(model)
        return model


def _add_status(sums: _Sums, status: ModelStatus) -> None:
    sums.add("running", status.running_requests)
    sums.add("held", status.held_requests)
    sums.add("wish", status.wish)
    sums.add("granted", status.granted)
    sums.add("shortage", status.shortage)
    sums.add("failures", status.failures)


def _merged(histograms: list[Histogram]) -> Histogram:
    if len(histograms) == 1:
        return histograms[0]
    merged = Histogram(histograms[0].bounds)
    for histogram in histograms:
        merged.counts = [mine + theirs for mine, theirs in zip(merged.counts, histogram.counts, strict=True)]
        merged.sum += histogram.sum
    return merged


def _readings(readings: Iterable[Reading]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for reading in readings:
        names = [name for name, _ in reading.labels]
        family = families.get(reading.name)
        if family is None:
            make = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
            family = make("relume_" + reading.name, reading.help, labels=names)
            families[reading.name] = family
        family.add_metric([value for _, value in reading.labels], reading.value)
    yield from families.values()
