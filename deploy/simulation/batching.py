"""One engine that takes batches, simulated: what a rule for their size makes of a load. Time and GPU use are modelled.

A batch of n inputs takes `fixed` and `each` for every one; beyond `fits` each takes `beyond`. The GPU is in use by
n / fits while a batch runs, which is what tools that count occupied units show: a small batch leaves it idle.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from events.units import Instant, Seconds
from runtime.core.batching.gathering import Batch, Gatherer, Member
from runtime.core.batching.tuning import EVERY, Look, State

Rule = Callable[[State, Look, Seconds], State]


@dataclass(frozen=True, slots=True)
class BatchEngine:
    """See the module. Seconds. The defaults are a choice: an embedding model whose kernels are full at 16 inputs."""

    fixed: Seconds = Seconds(0.02)
    each: Seconds = Seconds(0.001)
    fits: int = 16
    beyond: Seconds = Seconds(0.004)

    def takes(self, inputs: int) -> Seconds:
        """How long a batch of so many takes."""
        over = max(0, inputs - self.fits)
        return Seconds(self.fixed + self.each * (inputs - over) + self.beyond * over)


@dataclass(frozen=True, slots=True)
class Part:
    """`rate` requests a second, at random, for so many seconds."""

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Batched:
    """What came of it. `within`: the part of requests answered as promised; `gpu_use`: mean; `most`: at the end."""

    requests: int
    within: float
    p50: float
    p99: float
    batches: int
    gpu_use: float
    most: int
    mean_batch: float


NO_RULE: Final[Rule] = lambda state, _look, _promise: state  # noqa: E731 - a rule as the others are
"""The knobs stay."""


def arrivals(parts: Sequence[Part], seed: int) -> list[float]:
    """Poisson, part after part."""
    draws, times, begin = random.Random(seed), list[float](), 0.0  # noqa: S311 - a simulation
    for part in parts:
        at = begin
        while (at := at + draws.expovariate(part.rate)) < begin + part.seconds:
            times.append(at)
        begin += part.seconds
    return times


class _Engine:
    """One run."""

    def __init__(self, engine: BatchEngine, gatherer: Gatherer) -> None:
        self.engine, self.gatherer = engine, gatherer
        self.running: list[tuple[float, int, Batch]] = []
        self.took: list[float] = []
        self.recent: list[float] = []
        self.batches = self.inputs = self.recent_batches = self.recent_inputs = 0
        self.used = self.recent_used = self.longest = self.busy = 0.0

    def send(self, now: float) -> None:
        """What may go, goes."""
        for batch in self.gatherer.take(Instant(now)):
            inputs = sum(one.size for one in batch.members)
            takes = self.engine.takes(inputs)
            self.batches, self.inputs = self.batches + 1, self.inputs + inputs
            self.recent_batches, self.recent_inputs = self.recent_batches + 1, self.recent_inputs + inputs
            self.longest, self.busy = max(self.longest, takes), self.busy + takes
            use = takes * min(1.0, inputs / self.engine.fits)
            self.used, self.recent_used = self.used + use, self.recent_used + use
            heapq.heappush(self.running, (now + takes, self.batches, batch))

    def end(self, now: float) -> None:
        """A batch comes back."""
        _, _, batch = heapq.heappop(self.running)
        self.gatherer.ended()
        for member in batch.members:
            self.took.append(now - member.at)
            self.recent.append(now - member.at)

    def look(self) -> Look:
        """What the last half second showed."""
        ended = sorted(self.recent)
        fill = self.recent_inputs / self.recent_batches / self.gatherer.knobs.most if self.recent_batches else 0.0
        look = Look(
            min(1.0, self.recent_used / EVERY), Seconds(ended[int(0.99 * len(ended))]) if ended else None,
            self.recent_inputs / self.busy if self.busy else 0.0, fill, self.gatherer.waiting, Seconds(self.longest),
        )  # fmt: skip
        self.recent, self.recent_batches, self.recent_inputs, self.recent_used = [], 0, 0, 0.0
        self.longest = self.busy = 0.0
        return look


def simulate(  # noqa: PLR0913 - what is compared, and under what
    load: Sequence[float], begin: State, rule: Rule, promise: Seconds, engine: BatchEngine | None = None,
    *, patient: bool = False,
) -> Batched:  # fmt: skip
    """Requests at these times, all of which may share batches; one batch at a time. `patient`: see `Gatherer`."""
    state, gatherer = begin, Gatherer(begin.knobs, patient=patient)
    run = _Engine(engine or BatchEngine(), gatherer)
    following, looks_at, now = 0, EVERY, 0.0
    while following < len(load) or run.running or gatherer.waiting:
        due = gatherer.due(Instant(now))
        comes = load[following] if following < len(load) else inf
        ends = run.running[0][0] if run.running else inf
        now = min(comes, ends, looks_at, inf if due is None else due)
        if now == looks_at:
            state = rule(state, run.look(), promise)
            gatherer.knobs = state.knobs
            looks_at = Seconds(looks_at + EVERY)
        elif now == ends:
            run.end(now)
        elif now == comes:
            gatherer.add(Member(f"r{following}", "m", 1, Instant(now)))
            following += 1
        run.send(now)
    took = sorted(run.took)
    count = len(took)
    return Batched(
        requests=count, within=sum(one <= promise for one in took) / count if count else 1.0,
        p50=took[count // 2] if count else 0.0, p99=took[int(0.99 * count)] if count else 0.0, batches=run.batches,
        gpu_use=min(1.0, run.used / now) if now else 0.0, most=state.knobs.most,
        mean_batch=run.inputs / run.batches if run.batches else 0.0,
    )  # fmt: skip
