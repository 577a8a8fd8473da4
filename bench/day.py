"""A day of many models, simulated to its end: what it costs by request and by decision as the models grow in number.

The traffic is generated, since no public trace tells single requests of ten thousand models: what models are asked for
in a day is log-normal (a tenth take most of it, half at most four requests), and comes by the clock (three of
ten), with the hours of the day (half), or in bursts (one of five).
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from dataclasses import dataclass
from math import cos, pi

from bench.figures import Effort, Figure, Target
from deploy.simulation.request_policies import read_typed
from deploy.simulation.request_replay import Outcome, replay
from deploy.simulation.requests import RequestTrace, Rows
from deploy.simulation.setting import Setting

DAY = 86_400.0
EACH = 10.0
"""Requests of a model in the mean. Chosen: ten thousand models then have a hundred thousand."""
SKEW = 1.6
"""Of the log-normal number of requests. Chosen: Azure's functions of 2019 are more skewed still."""
MINUTES = Target(600.0)
"""Seconds for ten thousand models: "in minutes"."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a replay took: seconds of the clock, seconds of CPU of all processes."""

    wall: float
    cpu: float


async def run(effort: Effort) -> list[Figure]:
    """Seconds of a day of each number of models, beside the CPU of the fewest."""
    figures: list[Figure] = []
    fewest: float | None = None
    for models in (effort.size(100, 5), effort.size(1_000, 10), effort.size(10_000, 20)):
        trace = day(models, seed=0)
        spent, outcome = await asyncio.to_thread(_replayed, trace)
        each, told = spent.cpu / len(trace) * 1000, outcome.figures
        fewest = fewest or each
        what = f"a day of {models:,} models, {len(trace):,} requests"
        why = (
            f"{spent.cpu:.0f} s of CPU, {told.decisions:,} decisions of {spent.cpu / told.decisions * 1e6:.0f} us all "
            f"in all, {told.starts:,} starts, {100 * told.within_slo:.1f} % within 5 s"
        )
        target = MINUTES if models == 10_000 else None
        figures += [
            Figure(f"{what}: wall time", "s", spent.wall, target=target, why=why),
            Figure(f"{what}: CPU of a request", "ms", each, "among the fewest models", fewest),
        ]
    return figures


def _replayed(trace: RequestTrace) -> tuple[Spent, Outcome]:
    began, before = time.monotonic(), _cpu()
    outcome = replay(trace, [read_typed("relume")], Setting(), 0, lambda _: None)["relume"]
    return Spent(time.monotonic() - began, _cpu() - before), outcome


def _cpu() -> float:
    """Of this process and of those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def day(models: int, seed: int, each: float = EACH) -> RequestTrace:
    """A day of so many models, by the seed; one that nobody asks for is not in it."""
    draws = random.Random(seed)
    weights = [draws.lognormvariate(0.0, SKEW) for _ in range(models)]
    scale, rows = each * models / sum(weights), Rows.empty()
    for model, weight in enumerate(weights):
        count = int(weight * scale + draws.random())
        for at in _arrivals(count, draws):
            tokens = (1 + int(draws.lognormvariate(6.0, 1.0)), 1 + int(draws.lognormvariate(4.5, 0.8)))
            rows.add(min(max(at, 0.0), DAY), f"m{model:05d}", tokens)
    return rows.trace()


def _arrivals(count: int, draws: random.Random) -> list[float]:
    kind, begins = draws.random(), draws.random() * DAY
    if kind < 0.3:
        every = DAY / max(1, count)
        return [(begins + number * every + draws.expovariate(1.0)) % DAY for number in range(count)]
    if kind < 0.8:
        return [_in_its_hours(begins, draws) for _ in range(count)]
    bursts = [draws.random() * DAY for _ in range(1 + count // 8)]
    return [draws.choice(bursts) + draws.random() * 30.0 for _ in range(count)]


def _in_its_hours(peak: float, draws: random.Random) -> float:
    """Twice as often as in the mean at the peak, never twelve hours from it."""
    while True:
        at = draws.random() * DAY
        if draws.random() < 0.5 + 0.5 * cos(2 * pi * (at - peak) / DAY):
            return at
