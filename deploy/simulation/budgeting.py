"""A budget instead of a price: the fewest cold starts for a share of what a fixed keep-alive would have cost so far.

One price for all models, all the time, is best at any budget; but which price keeps to it differs by trace. So each
minute it is asked what each price of a ladder would have cost lately, over all models together, and the one is taken
by which the whole comes out nearest to the budget some time from now, debts and savings so far included. Nothing but
the past is known. At first that says little; what prices came to elsewhere (`ELSEWHERE`) stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.forecast.hold import GRAIN, LEVELS, Outlook, Past
from autoscaler.core.grains.policy import RelumeByMemory
from deploy.simulation.minutes import COLD_PART, MINUTE, MinuteTrace
from events.units import Seconds

Floats = NDArray[np.float64]
Rungs = NDArray[np.uint8]

LADDER: Final = tuple(1.1**rung for rung in range(104))
"""Prices that are tried: seconds of an idle GB, from one to five hours. A step is about a hundredth of the memory."""

ELSEWHERE: Final = (
    (1.0, 0.46), (3.0, 0.55), (6.0, 0.75), (10.0, 0.83), (17.0, 0.93), (30.0, 0.96), (60.0, 1.02), (120.0, 1.11),
    (300.0, 1.27), (1000.0, 1.69), (3000.0, 2.73), (18000.0, 6.29),
)  # fmt: skip
"""By price: memory against `keepalive(1m)`, once models are known. Printed by
`deploy.simulation.pacing`, of Azure's functions."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a budget is kept to, in minutes. `young`: the beginning that is one account, since at first every price costs
    more than later. `believed`: of the trace's own that weigh as much as `ELSEWHERE` at first; at the end of the
    beginning that counts no more. `settles`: within so many a debt is repaid or savings are spent after that. `aim`:
    at so much of the budget, which is rather kept than used up. Chosen by `deploy.simulation.pacing`."""

    believed: int = 120
    young: int = 360
    settles: int = 45
    aim: float = 0.9995
    elsewhere: tuple[tuple[float, float], ...] = ELSEWHERE

    def shares(self) -> Floats:
        """What is known from elsewhere, on each rung."""
        prices, shares = zip(*self.elsewhere, strict=True)
        found: Floats = np.interp(np.log(LADDER), np.log(prices), shares)
        return found


PACE: Final = Pace()


@dataclass(frozen=True, slots=True)
class RelumeWithin:
    """Ours, for `share` of the memory of `keepalive(keep)` over all models of the trace. Raises ValueError."""

    share: float
    keep: Seconds = Seconds(MINUTE)

    def __post_init__(self) -> None:
        if not self.share > 0.0:
            raise ValueError("a budget is a share of what a keep-alive costs, such as 0.96")


def rungs_of(needed: Sequence[int], memory_gb: float) -> Rungs:
    """Of one model, whose forecast learns as it goes; see `rungs`."""
    outlook, rows = Outlook(Past()), list[list[float]]()
    for now in needed:
        rows.append(outlook.chances())
        outlook = Outlook(outlook.after(now))
    chances = np.zeros((len(rows), max((len(row) for row in rows), default=0)))
    for minute, row in enumerate(rows):
        chances[minute, : len(row)] = row
    return rungs(chances, memory_gb)


def rungs(chances: Floats, memory_gb: float) -> Rungs:
    """By minute and level: the first rung of the ladder by whose price the level is held; `len(LADDER)`: by none.
    `chances`: that so many are needed; 0 of what was never thought of."""
    least = np.array([_least(price, memory_gb) for price in LADDER])
    found = np.searchsorted(-least, -chances, side="right")
    return np.maximum.accumulate(found, axis=1).astype(np.uint8)


def _least(price: float, memory_gb: float) -> float:
    """The chance above which it is held, as `Outlook.hold` has it."""
    return GRAIN / (RelumeByMemory(Seconds(price)).of(memory_gb).cold_start_cost + GRAIN / 2)


def replicas(rungs: Rungs, needed: NDArray[np.int64], rung: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """What is held of a model in each minute at the price on this rung, or on the rung of each minute.

    `needed`: in each minute; that of the one before stays between two levels (see `LEVELS`)."""
    held = (rungs <= np.asarray(rung).reshape(-1, 1)).sum(axis=1)
    levels = np.array((0, *LEVELS, np.iinfo(np.int64).max))
    before = np.concatenate([[0], needed[:-1]])
    return np.where(held > 0, np.maximum(levels[held], np.minimum(before, levels[held + 1] - 1)), 0)


def memory(needed: NDArray[np.int64], held: NDArray[np.int64], memory_gb: float) -> Floats:
    """GB-seconds in each minute of a model."""
    seconds: Floats = (held + COLD_PART * np.maximum(0, needed - held)) * MINUTE * memory_gb
    return seconds


def spent_by_rung(trace: MinuteTrace, of_models: Sequence[Rungs]) -> Floats:
    """GB-seconds over all models: rungs x minutes."""
    spent = np.zeros((len(LADDER), trace.minutes))
    for found, needed, gb in zip(of_models, trace.needed, trace.memory_gb.tolist(), strict=True):
        for rung in range(len(LADDER)):
            spent[rung] += memory(needed, replicas(found, needed, rung), gb)
    return spent


def spent_by(trace: MinuteTrace, held: NDArray[np.int64]) -> Floats:
    """GB-seconds in each minute over all models, of which so many are held."""
    each = zip(trace.needed, held, trace.memory_gb.tolist(), strict=True)
    total: Floats = np.array([memory(needed, row, gb) for needed, row, gb in each]).sum(axis=0)
    return total


def held_within(trace: MinuteTrace, of_models: Sequence[Rungs], path: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is held of each model in each minute, at the price on the rung of each minute."""
    return np.array([replicas(found, needed, path) for found, needed in zip(of_models, trace.needed, strict=True)])


def rung_path(spent: Floats, plain: Floats, reference: Floats, share: float, pace: Pace = PACE) -> NDArray[np.int64]:
    """The rung of each minute. Memory in each minute, over all models: `spent` at each rung, `plain` by
    `keepalive(1m)`, and `reference` by the keep-alive of which a `share` is allowed."""
    elsewhere = pace.shares()
    by_rung, by_plain, allowed = _until(spent), _until(plain), _until(share * pace.aim * reference)
    path = np.zeros(plain.size, dtype=np.int64)
    paid = 0.0
    for minute in range(plain.size):
        since = minute // 2
        grains, plainly = minute - since, by_plain[minute] - by_plain[since]
        coming, bearable = elsewhere, share
        if plainly > 0.0:
            left, saved = max(0, pace.young - minute), allowed[minute] - paid
            bearable = (allowed[minute] - allowed[since]) / grains + saved / max(pace.settles, left)
            believed = pace.believed * left / max(1, pace.young)
            lately = by_rung[:, minute] - by_rung[:, since]
            coming = (lately + believed * elsewhere * plainly / grains) / (grains + believed)
        path[minute] = _nearest(coming, bearable)
        paid += spent[path[minute], minute]
    return path


def _until(each: Floats) -> Floats:
    """The sum of all minutes before each, and of all."""
    total: Floats = np.concatenate([np.zeros((*each.shape[:-1], 1)), np.cumsum(each, axis=-1)], axis=-1)
    return total


def _nearest(coming: Floats, bearable: float) -> int:
    """Of what rises from rung to rung: a debt is as near as savings, so that neither stays for good."""
    return int(np.searchsorted((coming[1:] + coming[:-1]) / 2, bearable, side="right"))
