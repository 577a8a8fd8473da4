"""The tiers of a model's replicas by its forecast and its measured starts: how many warm, how many asleep beside them,
and what having its weights on a node is worth (`coldstart.core.tiers` has the costs).

Told beside the wish: the allocator passes on how many may sleep, the nodes' agents who should have which weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log2
from typing import Final, NamedTuple

from autoscaler.core.forecast.following import Following, outlook
from autoscaler.core.forecast.hold import GRAIN, Past
from autoscaler.core.forecast.idle import HOUR
from autoscaler.core.policy import ScalingPolicy
from coldstart.core.estimate import StartEstimate
from coldstart.core.tiers import Ladder, StartTimes, Tier, choose, ladder, least_chance, second_worth
from coldstart.core.whereabouts import HERE, ToFetch
from events.types.decisions import Tiers
from events.types.replicas import Phase
from events.units import Instant, Seconds

ENGINE: Final = (Phase.SPAWN, Phase.LOAD, Phase.WARMUP)
"""A start whose weights are on the node. Waiting for a place is the same for what sleeps."""

SOON_LEAST: Final = 2.0**-12
"""A chance below it is told as this."""


class Held(NamedTuple):
    """Replicas to hold warm, and warm or asleep (None: nothing is known of sleep); the chance that one is needed within
    an hour."""

    warm: int
    with_asleep: int | None
    soon: float


def measured(estimate: StartEstimate, asleep_bytes: int | None) -> StartTimes:
    """The start times that were seen, medians. A fetch is the part of it that the engine does not hide."""
    cold = estimate.typical(ENGINE)
    fetching, here = estimate.whole(ToFetch(None)), estimate.whole(HERE)
    fetch = 0.0 if fetching is None or here is None else fetching - here
    return StartTimes(cold=cold, fetch=fetch or None, wake=estimate.wake(), asleep_bytes=asleep_bytes)


def newest(seen: StartTimes | None, known: StartTimes | None) -> StartTimes | None:
    """What was seen by this process; where that is nothing, what was known before."""
    if seen is None or known is None or seen == known:
        return seen or known
    return StartTimes(
        cold=known.cold if seen.cold is None else seen.cold, fetch=known.fetch if seen.fetch is None else seen.fetch,
        wake=known.wake if seen.wake is None else seen.wake,
        asleep_bytes=known.asleep_bytes if seen.asleep_bytes is None else seen.asleep_bytes,
    )  # fmt: skip


def rungs_of(policy: ScalingPolicy, starts: StartTimes | None) -> Ladder | None:
    """What a replica costs in each tier; None without a price. What is not declared to sleep has no such tier."""
    if policy.cold_start_cost is None:
        return None
    if starts is not None and not policy.sleeps:
        starts = replace(starts, wake=None)
    return ladder(policy.cold_start_cost, policy.gpus, starts)


@lru_cache(maxsize=1024)
def held(past: Past, rungs: Ladder) -> Held:
    """By what it costs. (Remembered, since it is asked at each decision of a grain.)"""
    ahead = outlook(past)
    warm, soon = ahead.above(least_chance(rungs, GRAIN)), ahead.coming()[HOUR].chance
    if rungs.asleep is None:
        return Held(warm, None, soon)
    return Held(warm, max(warm, ahead.worth(lambda some: choose(rungs, GRAIN, some) >= Tier.ASLEEP)), soon)


def starts_at(forecast: Following, start: float | None) -> float:
    """When a replica must start that is to be ready as the next grain begins: at the earliest as this one begins, and
    as the next one does where it is not known how long a start takes."""
    return forecast.ends_at - min(GRAIN, start or 0.0)


def then(forecast: Following) -> Past:
    """What will be remembered as the next grain begins, if no more is needed in this one."""
    return _after(forecast.past, forecast.most)


@lru_cache(maxsize=1024)
def _after(past: Past, most: int) -> Past:
    """(Remembered, since it is asked at each decision until a grain ends.)"""
    return outlook(past).after(most)


def warm_now(forecast: Following, rungs: Ladder, start: float | None, now: Instant) -> int:
    """Replicas to have warm or starting: for this grain, and for the next one too once a start that began now would
    take until then."""
    warm = held(forecast.past, rungs).warm
    return warm if now < starts_at(forecast, start) else max(warm, held(then(forecast), rungs).warm)


def told(forecast: Following, policy: ScalingPolicy, starts: StartTimes | None, replicas: int) -> Tiers | None:
    """What is told beside a wish for so many replicas."""
    rungs = rungs_of(policy, starts)
    if rungs is None or policy.cold_start_cost is None:
        return None
    by_cost = held(forecast.past, rungs)
    second = second_worth(Seconds(policy.cold_start_cost), policy.gpus, starts)
    least = None if by_cost.with_asleep is None else min(by_cost.with_asleep, policy.max_replicas)
    return Tiers(
        asleep=None if least is None else max(0, least - replicas),
        soon=coarse(max(SOON_LEAST, by_cost.soon)),
        second=None if second is None else coarse(second),
    )


def coarse(amount: float) -> float:
    """The nearest power of two, so that what is told changes seldom."""
    return float(2.0 ** round(log2(amount)))
