"""Sentences about the price of a cold start and about tiers: what a replica costs in each, and what follows."""

from __future__ import annotations

from autoscaler.core.forecast.following import Following, outlook
from autoscaler.core.forecast.hold import GRAIN
from autoscaler.core.forecast.idle import HORIZONS, HOUR
from autoscaler.core.model import Memory
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.tiering import rungs_of, told
from autoscaler.words import percent, replicas, span
from coldstart.core.tiers import GB, Coming, Ladder, Rung, StartTimes, least_chance, saves, second_worth
from events.types.decisions import Tiers


def tier_sentences(policy: ScalingPolicy, memory: Memory, replicas_wished: int) -> tuple[str, ...]:
    """Of a decision whose cold start has a price; none of others."""
    starts, forecast = memory.starts, memory.forecast
    rungs = rungs_of(policy, starts)
    if rungs is None or forecast is None:
        return ()
    tiers = None if memory.last_busy_at is None else told(forecast, policy, starts, replicas_wished)
    least = least_chance(rungs, GRAIN)
    held = f"A replica is held warm above a chance of {percent(least)} of being needed in the minute"
    if least >= 1:
        held = "By its price no replica is held warm for what may come"
    return (
        _price(policy, starts), f"{held}{_why(rungs)}.", *_asleep(starts, rungs, forecast, tiers), *_weights(tiers),
    )  # fmt: skip


def _price(policy: ScalingPolicy, starts: StartTimes | None) -> str:
    cost = policy.cold_start_cost
    assert cost is not None
    text = f"A cold start is worth {span(cost)} of an idle replica"
    if policy.pool_cost is not None:
        text += f" (the pool says {span(policy.pool_cost)} of a GPU, and a replica takes {_figure(policy.gpus)})"
    second = second_worth(cost, policy.gpus, starts)
    if starts is None or starts.cold is None or second is None:
        return f"{text}; no start was measured yet, so every start costs that."
    wake = "" if starts.wake is None or not policy.sleeps else f", a wake {span(starts.wake)}"
    fetch = "" if starts.fetch is None else f", fetching its weights {span(starts.fetch)} more"
    took = f"{span(starts.cold)}{wake}{fetch}"
    return f"{text}; starts took {took}, so a second of them is worth {_figure(second)} GPU-seconds."


def _why(rungs: Ladder) -> str:
    return "" if rungs.asleep is None else f", since a wake costs {_figure(rungs.asleep.start)} GPU-seconds"


def _asleep(starts: StartTimes | None, rungs: Ladder, forecast: Following, tiers: Tiers | None) -> tuple[str, ...]:
    rung = rungs.asleep
    if rung is None or starts is None or tiers is None or tiers.asleep is None:
        return ()
    ahead = outlook(forecast.past).coming()
    best = _best(rung, rungs.cold.start, ahead)
    pays = "pays" if saves(rung, rungs.cold.start, ahead) > 0.0 else "does not pay"
    keeps = _figure((starts.asleep_bytes or 0) / GB)
    text = (
        f"One asleep keeps {keeps} GB, which costs {_figure(3600 * rung.rate)} GPU-seconds an hour, and saves "
        f"{_figure(rungs.cold.start - rung.start)} when it is needed; the chance of that is {percent(best.chance)} "
        f"within {span(best.within)}: that {pays}, and {replicas(tiers.asleep)} may sleep."
    )
    return (text,)


def _best(rung: Rung, start: float, ahead: tuple[Coming, ...]) -> Coming:
    """Until when it is held for the most gain."""
    return max(ahead, key=lambda one: one.chance * (start - rung.start) - one.held * rung.rate)


def _weights(tiers: Tiers | None) -> tuple[str, ...]:
    if tiers is None or tiers.second is None:
        return ()
    hour = span(GRAIN * HORIZONS[HOUR])
    text = (
        f"Nodes that choose whose weights to keep are told {percent(tiers.soon)} within {hour}, and "
        f"{_figure(tiers.second)} GPU-seconds for each second of a start."
    )
    return (text,)


def _figure(amount: float) -> str:
    """Three digits, as many before the point as there are: a small model on a CPU is worth thousandths of a GPU."""
    return f"{amount:.3g}" if amount < 1000 else f"{amount:.0f}"
