"""In which tier what nobody needs just now costs least: a replica warm, asleep, its weights on disk, or nothing.

Everything is in seconds of GPUs. A tier costs for as long as it is held, and, when it is needed, what the seconds to
the first token from there are worth. The rule of a ski hire, where the chances of snow are known.

Two questions, two horizons. *Warm* is asked for the next grain alone, as decision 60 does: what is let go then comes
back when the forecast says so. What sleeps, or lies on disk, does not come back by itself, so that is asked over all
of `Coming`: it stays if there is any time until which it is expected to pay.

Monotone by construction: a higher chance or price never gives a colder tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import inf
from typing import Final, NamedTuple

from events.kinds import value
from events.types.shared import Amount, Count
from events.units import Bytes, Seconds

GB: Final = 1e9

HOST_GB: Final = 0.0015
"""What a GB of host memory costs, in GPUs. With `CORE` and `DISK_GB` a choice, in the order of clouds' list prices: 3
dollars an hour for an A100, 4.2 for a TB of memory, 0.03 for a core, 0.11 for a TB of local SSD."""

CORE: Final = 0.01
"""What a core costs, in GPUs."""

DISK_GB: Final = 0.00004
"""What a GB of a node's disk costs, in GPUs."""


class Tier(IntEnum):
    """Colder first."""

    NOTHING = 0
    WEIGHTS = 1
    """On the node's disk."""
    ASLEEP = 2
    """The process lives, without its GPUs."""
    WARM = 3


class Coming(NamedTuple):
    """Until so many seconds from now: how likely it is needed by then, and for how many of them it would have been held
    by then, on average (it is held no longer than until it is needed)."""

    within: Seconds
    chance: float
    held: Seconds


@value
class StartTimes:
    """Of a model, as measured; None: not known yet. `cold`: seconds of a start whose weights are on the node; `fetch`:
    what fetching them adds. `wake`: of one that slept, which then held `asleep_bytes` of host memory."""

    cold: Amount | None = None
    fetch: Amount | None = None
    wake: Amount | None = None
    asleep_bytes: Count | None = None


class Rung(NamedTuple):
    """What one replica costs in a tier: `rate` GPUs while it is held, `start` GPU-seconds when it is needed there."""

    rate: float
    start: float


class Ladder(NamedTuple):
    """The rungs of one replica; None: it has not that one, or what it costs is not known. `cold` is a start whose
    weights are on the node."""

    warm: Rung
    asleep: Rung | None
    cold: Rung
    nothing: Rung | None


def gpus_of(gpus: float, cpu: float, memory: Bytes) -> float:
    """What a replica takes, in GPUs. One without any: what its cores and its memory cost."""
    return gpus if gpus > 0.0 else max(CORE, CORE * cpu + HOST_GB * memory / GB)


def second_worth(cost: Seconds, gpus: float, starts: StartTimes | None) -> float | None:
    """What a second of a start is worth, in GPU-seconds: a start whose weights are on the node is worth `cost` seconds
    of a replica of `gpus`. None: no start was measured."""
    return None if starts is None or not starts.cold else cost * gpus / starts.cold


def ladder(cost: Seconds, gpus: float, starts: StartTimes | None, weights: Bytes | None = None) -> Ladder:
    """The rungs of a replica that takes so many `gpus`. `cost`: what a cold start is worth, in seconds of it: that is
    declared, and what every start costs of which no time was measured. `weights`: their size, where it is known."""
    cold = cost * gpus
    second = second_worth(cost, gpus, starts)
    asleep = nothing = None
    if second is not None and starts is not None:
        if starts.wake is not None and starts.asleep_bytes is not None:
            asleep = Rung(HOST_GB * starts.asleep_bytes / GB, min(cold, second * starts.wake))
        if starts.fetch is not None:
            nothing = Rung(0.0, cold + second * starts.fetch)
    return Ladder(Rung(gpus, 0.0), asleep, Rung(0.0 if weights is None else DISK_GB * weights / GB, cold), nothing)


def least_chance(rungs: Ladder, grain: Seconds) -> float:
    """Above this chance of being needed in the next `grain` a replica is held warm. One that starts in it is there for
    half of it on average."""
    return max(_crossing(rungs.warm, rung, grain) for rung in (rungs.asleep, rungs.cold) if rung is not None)


def saves(rung: Rung, start: float, coming: Sequence[Coming]) -> float:
    """GPU-seconds that holding this rung is expected to save against a start that costs `start`, held as long as is
    best: the most over all of `coming`; never negative, since it need not be held."""
    gain = start - rung.start
    return max((0.0, *(one.chance * gain - one.held * rung.rate for one in coming))) if gain > 0.0 else 0.0


def weights_worth(soon: float, second: float, absence: Seconds, size: Bytes) -> float:
    """GPU-seconds that having weights on a node for an hour is expected to save. `soon`: the chance that they are
    needed within it; `second`: what a second of the start is worth; `absence`: how long it would wait for them."""
    hour = Seconds(3600.0)
    return saves(Rung(DISK_GB * size / GB, 0.0), second * absence, (Coming(hour, soon, hour),))


def choose(rungs: Ladder, grain: Seconds, coming: Sequence[Coming]) -> Tier:
    """The tier of least expected cost for the coming grain; of equal ones the colder. `coming` begins with it. (What is
    warm or asleep has its weights on disk as well, so their cost is not asked there.)"""
    if coming and coming[0].chance > least_chance(rungs, grain):
        return Tier.WARM
    if rungs.asleep is not None and saves(rungs.asleep, rungs.cold.start, coming) > 0.0:
        return Tier.ASLEEP
    if rungs.nothing is None or saves(rungs.cold, rungs.nothing.start, coming) > 0.0:
        return Tier.WEIGHTS
    return Tier.NOTHING


def _crossing(warm: Rung, rung: Rung, grain: Seconds) -> float:
    """The chance at which both cost the same."""
    dearer, per_need = (warm.rate - rung.rate) * grain, rung.start + warm.rate * grain / 2
    return dearer / per_need if per_need > 0.0 else inf
