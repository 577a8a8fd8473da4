"""What tiers chosen by expected cost save beside fixed keep-alives, on FeMux's apps minute by minute.

Each replica is one GPU and starts cold in 30 s; asleep it keeps 16 GB of host memory and wakes in 2 s. At the end of
each minute a policy says how many replicas it holds warm and how many asleep; in the next one those needed beyond the
warm ones wake, and beyond the sleepers start cold. What can sleep was there the minute before. Accounting as in
`deploy.simulation.minutes`: what is held, the half of its minute for each that woke or started; memory of sleepers at
its price. Fixed: warm for so many minutes after each was needed, then asleep for so many (a grid). Beside it the
forecast of decision 60 with sleepers that live for half an hour: what a declared `coldStart.sleep` had before. No clock
is in these figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.core.forecast.hold import GRAIN, Outlook, Past
from bench.figures import Effort, Figure, Target
from bench.prices import common_apps
from coldstart.core.tiers import GB, HOST_GB, Ladder, StartTimes, Tier, choose, ladder, least_chance
from deploy.simulation.minutes import read_femux
from events.units import Seconds
from tests.support.needs import traces_folder

STARTS: Final = StartTimes(cold=30.0, wake=2.0, asleep_bytes=int(16 * GB))
PRICES: Final = (120, 300, 600, 1200, 1800, 2400, 4800)
"""Seconds of a replica that a cold start may be worth."""
WARM: Final = (1, 2, 3, 5, 10, 15)
ASLEEP: Final = (0, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
LIVED: Final = 30
"""Minutes that a sleeper lived when nobody said (`coldStart.sleep.keepAlive`)."""


@dataclass(slots=True)
class Totals:
    """GPU-seconds held (memory at its price), cold starts, wakes, and seconds that these took."""

    gpu_seconds: float = 0.0
    cold: int = 0
    wakes: int = 0

    @property
    def waited(self) -> float:
        """Seconds of starts."""
        return self.cold * (STARTS.cold or 0.0) + self.wakes * (STARTS.wake or 0.0)


@dataclass(slots=True)
class Replicas:
    """The replicas of one app under one policy: how many live, and since when (minutes) each number was needed last."""

    totals: Totals
    alive: int = 0
    idle: list[int] = field(default_factory=list)

    def minute(self, warm: int, may_sleep: int, needed: int) -> None:
        """One minute: so many are held warm, so many of what lives besides asleep, and then so many are needed."""
        asleep = max(0, min(may_sleep, self.alive - warm))
        missing = max(0, needed - warm)
        woken = min(missing, asleep)
        held = warm + (missing) / 2 + asleep * HOST_GB * (STARTS.asleep_bytes or 0) / GB
        self.totals.gpu_seconds += held * GRAIN
        self.totals.wakes += woken
        self.totals.cold += missing - woken
        self.alive = max(warm + asleep, needed)

    def needed_within(self, minutes: int) -> int:
        """The most that was needed in so many last minutes."""
        return sum(idle < minutes for idle in self.idle)

    def ended(self, needed: int) -> None:
        """The minute is over."""
        self.idle += [1 << 30] * (needed - len(self.idle))
        for at, idle in enumerate(self.idle):
            self.idle[at] = 0 if at < needed else idle + 1


def fixed(rows: Sequence[Sequence[int]], warm: int, asleep: int) -> Totals:
    """Warm for so many minutes, then asleep for so many."""
    totals = Totals()
    for row in rows:
        one = Replicas(totals)
        for needed in row:
            held = one.needed_within(warm)
            one.minute(held, one.needed_within(warm + asleep) - held, needed)
            one.ended(needed)
    return totals


def by_cost(rows: Sequence[Sequence[int]], prices: Sequence[int]) -> tuple[list[Totals], list[Totals]]:
    """At each price: the tiers; and warm by the forecast of decision 60, then asleep for `LIVED` minutes. (What is
    learned does not depend on the price.)"""
    rungs = [ladder(Seconds(price), 1.0, STARTS) for price in prices]
    tiers, lived = [Totals() for _ in prices], [Totals() for _ in prices]
    for row in rows:
        ours, was = [Replicas(one) for one in tiers], [Replicas(one) for one in lived]
        past = Past()
        for needed in row:
            ahead = Outlook(past)
            for price, some, one, other in zip(prices, rungs, ours, was, strict=True):
                warm = ahead.above(least_chance(some, GRAIN))
                one.minute(warm, _with_asleep(ahead, some) - warm, needed)
                held = ahead.hold(Seconds(price))
                other.minute(held, max(0, other.needed_within(LIVED) - held), needed)
                other.ended(needed)
            past = ahead.after(needed)
    return tiers, lived


def _with_asleep(ahead: Outlook, rungs: Ladder) -> int:
    return ahead.worth(lambda some: choose(rungs, GRAIN, some) >= Tier.ASLEEP)


async def run(effort: Effort) -> list[Figure]:
    """GPU-seconds beside fixed pairs, and beside the forecast with sleepers that live for a fixed time."""
    traces = traces_folder()
    file, common = traces / "femux_knative100_containers_per_min.csv.gz", traces / "result_sim_femux_100apps.csv"
    if not (file.is_file() and common.is_file()):
        return [Figure("FeMux, tiers by expected cost", why=f"there are no traces in {traces}")]
    trace = common_apps(read_femux(file), common)
    rows = trace.needed[: effort.size(len(trace.names), 5)].tolist()
    tiers, lived = by_cost(rows, PRICES)
    grid = {(warm, asleep): fixed(rows, warm, asleep) for warm in WARM for asleep in ASLEEP}
    judged = None if effort.quick else Target(1.0)
    figures = []
    for warm, asleep in ((5, LIVED), (1, LIVED)):
        was, name = grid[warm, asleep], f"FeMux, GPU-seconds beside warm {warm} m, then asleep {asleep} m"
        figures.append(_beside(name, was, cheapest(tiers, was), judged))
    for price, one in zip(PRICES, tiers, strict=True):
        name = f"FeMux at {price} s, GPU-seconds beside the best fixed pair of {len(grid)}"
        figures.append(_beside(f"{name} with as few cold starts", fewest(grid.values(), one.cold), one, judged))
        figures.append(_beside(f"{name} that waits no longer either", cheapest(grid.values(), one), one, judged))
    for price, was in zip(PRICES, lived, strict=True):
        name = f"FeMux, GPU-seconds beside decision 60 at {price} s, then asleep {LIVED} m"
        figures.append(_beside(name, was, cheapest(tiers, was), judged))
    return figures


def fewest(some: Iterable[Totals], cold: int) -> Totals | None:
    """The cheapest that starts cold no more often."""
    return min((one for one in some if one.cold <= cold), key=lambda one: one.gpu_seconds, default=None)


def cheapest(some: Iterable[Totals], bound: Totals) -> Totals | None:
    """The cheapest that starts cold no more often, and waits no longer."""
    able = [one for one in some if one.cold <= bound.cold and one.waited <= bound.waited]
    return min(able, key=lambda one: one.gpu_seconds, default=None)


def _beside(name: str, was: Totals | None, ours: Totals | None, target: Target | None) -> Figure:
    """By how much ours is cheaper."""
    if was is None or ours is None:
        return Figure(name, why="none has so few cold starts and waits so little")
    return Figure(name, "x", ours.gpu_seconds / was.gpu_seconds, target=target, why=f"{_said(was)}; ours {_said(ours)}")


def _said(one: Totals) -> str:
    return f"{one.gpu_seconds:,.0f} GPU.s, {one.cold:,} cold, {one.wakes:,} wakes, {one.waited:,.0f} s waited"
