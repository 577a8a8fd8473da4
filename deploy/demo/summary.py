"""The demo's figures: percentiles of what clients saw, starts by phase, replicas over time. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from deploy.demo.chart import Mark, Sample
from deploy.demo.traffic import Answer


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a replica: seconds by phase, and from its creation to ready."""

    replica: str
    phases: Mapping[str, float]
    total: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds; None: nothing was measured."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    worst: float | None


@dataclass(frozen=True, slots=True)
class Lent:
    """What came of it. Seconds; `stages` from the demand to the GPU usable; `lost`: GPU-seconds by cause.

    `same_curve`: whether the losses of all steps are those of a run that nobody interrupted, bit for bit.
    """

    first_token: float
    saved_step: int
    resumed_step: int
    steps_lost: int | None
    runs: int
    stages: Mapping[str, float]
    lost: Mapping[str, float]
    losses: Sequence[float]
    same_curve: bool
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Summary:
    """All that the report and the terminal show. `explanations`: sentences of `relume explain`, by their title."""

    model: str
    machine: str
    cold: Answer
    warm_first_token: Percentiles
    burst_first_token: Percentiles
    burst_held: Percentiles
    answered: int
    failed: int
    starts: Sequence[Start]
    most_replicas: int
    most_held: int
    seconds_to_zero: float | None
    explanations: Mapping[str, Sequence[str]]
    samples: Sequence[Sample]
    marks: Sequence[Mark]
    failures: Sequence[str] = field(default_factory=tuple)
    lent: Lent | None = None
    """The second act: None when it was not played."""

    def as_json(self) -> dict[str, object]:
        """Plain values for ``summary.json``."""
        return asdict(self)


def percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles of seconds."""
    ordered = sorted(values)

    def rank(share: float) -> float | None:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None

    return Percentiles(len(ordered), rank(0.5), rank(0.95), rank(0.99), rank(1.0))


def first_tokens(answers: Sequence[Answer]) -> list[float]:
    """Seconds to the first token of the answers that had one."""
    return [answer.first_token for answer in answers if answer.ok and answer.first_token is not None]


def failures(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Each way in which requests failed, once, with how often; the most frequent first, at most ten."""
    ways = Counter(f"{answer.status}: {answer.error or 'no token'}" for answer in answers if not answer.ok)
    return tuple(f"{way} ({count} times)" if count > 1 else way for way, count in ways.most_common(10))


def seconds(value: float | None) -> str:
    """Seconds for a table: three digits that mean something, or a dash for unknown."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def phase_names(starts: Sequence[Start]) -> list[str]:
    """The phases that occur in any start, in their order."""
    names: dict[str, None] = {}
    for start in starts:
        for name in start.phases:
            names.setdefault(name)
    return list(names)
