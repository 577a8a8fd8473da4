"""What the price of a cold start keeps to on apps that it was not chosen on: FeMux's 93.

Judged on all of them are the default price, which was chosen on Azure's functions, and budgets, which find their price
as they go. And the price of one half of the apps is judged on the other half, and the other way round: each app once,
by a price that it had no say in. Drawn twenty times by a seed.
The weights of the forecast are from Azure's functions, none from these apps. No clock is in these figures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.grains.peers import KeepAlive
from autoscaler.core.grains.policy import DEFAULT_IDLE_GB, RelumeByMemory
from bench.figures import Effort, Figure, Target, median
from deploy.simulation.budgeting import RelumeWithin
from deploy.simulation.minutes import COLD_PART, MINUTE, MinuteTrace, only, read_femux
from deploy.simulation.naming import Made
from deploy.simulation.replaying import Work, held_by, replay
from events.units import Seconds
from tests.support.needs import traces_folder

PRICES: Final = (*range(12, 45), 100, 200, *range(280, 451, 5), 500, 600)
"""Seconds of an idle GB that a cold start may be worth."""
FEWEST, LEANEST = 1.40, 0.96
"""Of the memory of `keepalive(1m)`: what the two gates allow."""
SPLITS: Final = 20


@dataclass(frozen=True, slots=True)
class Told:
    """By price and app: cold starts and GB-seconds; by app: GB-seconds of `keepalive(1m)`."""

    cold: NDArray[np.int64]
    memory: NDArray[np.float64]
    yardstick: NDArray[np.float64]

    def of(self, price: int, apps: Sequence[int]) -> tuple[int, float, float]:
        """Cold starts, memory and the yardstick's memory of some apps at the price of this number."""
        chosen = list(apps)
        return (
            int(self.cold[price, chosen].sum()),
            float(self.memory[price, chosen].sum()),
            float(self.yardstick[chosen].sum()),
        )


async def run(effort: Effort) -> list[Figure]:
    """Cold starts and relative memory, as drawn by the halves."""
    what = "FeMux, the price chosen on the other half of the apps"
    traces = traces_folder()
    file, common = traces / "femux_knative100_containers_per_min.csv.gz", traces / "result_sim_femux_100apps.csv"
    if not all(one.is_file() for one in (file, common)):
        return [Figure(what, why=f"there are no traces in {traces}")]
    trace = common_apps(read_femux(file), common)
    told = _told(trace, effort.size(len(trace.names), 10))
    figures = [_by_default(told, None if effort.quick else Target(350.0))]
    for bound, gate in ((FEWEST, 350.0), (LEANEST, 2172.0)):
        drawn = [_crossed(told, bound, seed) for seed in range(SPLITS)]
        colds, memories = [float(cold) for cold, _, _ in drawn], [memory for _, memory, _ in drawn]
        prices = sorted({price for _, _, chosen in drawn for price in chosen})
        why = f"{SPLITS} draws; prices chosen: {', '.join(map(str, prices))} GB.s"
        name = f"{what}, memory at most {bound:g} there"
        judged = None if effort.quick else Target(gate)
        within = _within(only(trace, trace.names[: told.cold.shape[1]]), bound)
        figures += [
            Figure(f"FeMux, by a budget of {bound:g}: cold starts", "", within[0], target=judged,
                   why=f"{within[1] / told.yardstick.sum():.4f} times the memory"),
            _best(told, bound, judged),
            Figure(f"{name}: cold starts", "", median(colds), target=judged, low=min(colds), high=max(colds), why=why),
            Figure(f"{name}: memory", "x", median(memories), target=None if effort.quick else Target(bound),
                   low=min(memories), high=max(memories)),
        ]  # fmt: skip
    return figures


def _by_default(told: Told, target: Target | None) -> Figure:
    default = round(DEFAULT_IDLE_GB)
    cold, memory, yardstick = told.of(PRICES.index(default), range(told.cold.shape[1]))
    what = f"FeMux, by the default price, {default} GB.s, chosen on Azure: cold starts"
    return Figure(what, "", cold, target=target, why=f"{memory / yardstick:.3f} times the memory")


def _best(told: Told, bound: float, target: Target | None) -> Figure:
    """Where the curve passes the bound, which nobody knows beforehand."""
    apps = range(told.cold.shape[1])
    price = _dearest(told, bound, apps)
    cold, memory, yardstick = told.of(price, apps)
    why = f"{memory / yardstick:.4f} times the memory; price: {PRICES[price]} GB.s"
    return Figure(f"FeMux, the best price in hindsight, memory at most {bound:g}: cold starts", "", cold,
                  target=target, why=why)  # fmt: skip


def common_apps(trace: MinuteTrace, common: Path) -> MinuteTrace:
    """The apps that both published result files cover."""
    other = common.with_name("result_sim_Default_Knative_100apps.csv")
    one, two = (
        {line.split(",", 1)[0] for line in file.read_text(encoding="utf-8").splitlines()} for file in (common, other)
    )
    return only(trace, sorted(one & two))


def _told(trace: MinuteTrace, apps: int) -> Told:
    needed = tuple(tuple(row) for row in trace.needed[:apps].tolist())
    ours: tuple[tuple[str, Made], ...] = tuple((f"{one}", RelumeByMemory(Seconds(one))) for one in PRICES)
    plain: tuple[tuple[str, Made], ...] = (("keepalive", KeepAlive(Seconds(MINUTE))),)
    gb = trace.memory_gb[:apps]
    held, base = (held_by(Work(some, 0, needed, tuple(gb.tolist()))) for some in (ours, plain))

    def memory(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        cold = np.maximum(0, trace.needed[:apps] - rows)
        each: NDArray[np.float64] = (rows + COLD_PART * cold).sum(axis=-1) * MINUTE * gb
        return each

    return Told(np.maximum(0, trace.needed[:apps] - held).sum(axis=-1), memory(held), memory(base)[0])


def _within(trace: MinuteTrace, share: float) -> tuple[int, float]:
    """Cold starts and memory by a budget."""
    totals = replay(trace, {"": RelumeWithin(share)}, 0, lambda _: None)[""].totals
    return totals.cold_starts, totals.memory_gb_seconds


def _crossed(told: Told, bound: float, seed: int) -> tuple[int, float, tuple[int, int]]:
    """Cold starts and relative memory of all apps, each half at the price of the other; and the two prices."""
    apps = list(range(told.cold.shape[1]))
    random.Random(seed).shuffle(apps)
    halves = apps[: len(apps) // 2], apps[len(apps) // 2 :]
    chosen = tuple(_dearest(told, bound, half) for half in halves)
    sums = [told.of(price, half) for price, half in zip(reversed(chosen), halves, strict=True)]
    cold, memory, yardstick = (sum(column) for column in zip(*sums, strict=True))
    return int(cold), memory / yardstick, (PRICES[chosen[0]], PRICES[chosen[1]])


def _dearest(told: Told, bound: float, apps: Sequence[int]) -> int:
    """The highest price that keeps to the bound there; the lowest if none does."""
    for price in reversed(range(len(PRICES))):
        _, memory, yardstick = told.of(price, apps)
        if memory <= bound * yardstick:
            return price
    return 0
