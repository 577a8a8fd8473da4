"""Policies over a trace of minutes: the same functions as elsewhere, over the cores, and what came of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.grains.oracle import Oracle
from autoscaler.core.grains.peers import KeepAlive
from autoscaler.core.grains.policy import Relume, RelumeByMemory
from deploy.simulation.budgeting import RelumeWithin, Rungs, held_within, rung_path, rungs_of, spent_by, spent_by_rung
from deploy.simulation.minutes import MINUTE, MinuteTotals, MinuteTrace, account
from deploy.simulation.naming import AnyPolicy, Foreseeing, Made, Named
from deploy.simulation.spreading import spread
from events.units import Seconds

FLAP: Final = 5
"""Grains within which more after less is a flap."""

WORTH_A_PROCESS: Final = 20_000
"""Decisions below which starting processes takes longer than it saves."""

CHUNKS: Final = 8
"""Pieces of work a process: enough that none waits long for the last."""

OURS: Final = (Relume, RelumeByMemory)

Held = NDArray[np.int64]
R = TypeVar("R")
Progress = Callable[[int], None]
"""Called with how many more decisions have been taken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did over a trace."""

    totals: MinuteTotals
    decisions: int
    flaps: int


@dataclass(frozen=True, slots=True)
class Work:
    """Some models of a trace for policies that remember alike. `first`: the row of the first of the models.
    `memory_gb`: of one replica of each."""

    policies: tuple[tuple[str, Made], ...]
    first: int
    needed: tuple[tuple[int, ...], ...]
    memory_gb: tuple[float, ...]


def replay(trace: MinuteTrace, policies: dict[str, Named], jobs: int, progress: Progress) -> dict[str, Outcome]:
    """What each policy did. `jobs`: processes; 0: one a core. Raises BrokenPolicy, ProcessDied."""
    alone = {name: made for name, made in policies.items() if not isinstance(made, RelumeWithin)}
    budgets = {name: made for name, made in policies.items() if isinstance(made, RelumeWithin)}
    held = {name: np.zeros_like(trace.needed) for name in policies}
    with _done(_pieces(trace, alone, jobs or os.cpu_count() or 1), held_by, trace, jobs) as done:
        for work, rows in done:
            for (name, _), of_policy in zip(work.policies, rows, strict=True):
                held[name][work.first : work.first + of_policy.shape[0]] = of_policy
            progress(rows.size)
    held.update(_within(trace, budgets, jobs, progress))
    return {name: Outcome(account(trace, rows), rows.size, flaps(rows)) for name, rows in held.items()}


def _within(trace: MinuteTrace, budgets: dict[str, RelumeWithin], jobs: int, progress: Progress) -> dict[str, Held]:
    """A budget is over all models, so what each price would hold of each of them is asked first, spread over the cores;
    what is held by it then follows minute by minute."""
    if not budgets:
        return {}
    rungs: list[Rungs] = [np.zeros((0, 0), dtype=np.uint8)] * len(trace.names)
    with _done(_pieces(trace, {"": RelumeByMemory()}, jobs or os.cpu_count() or 1), _rungs, trace, jobs) as done:
        for work, found in done:
            rungs[work.first : work.first + len(found)] = found
            progress(len(found) * trace.minutes * len(budgets))
    spent, plain = spent_by_rung(trace, rungs), _spent_by_keepalive(trace, Seconds(MINUTE))
    keeps = {keep: _spent_by_keepalive(trace, keep) for keep in {made.keep for made in budgets.values()}}
    paths = {name: rung_path(spent, plain, keeps[made.keep], made.share) for name, made in budgets.items()}
    return {name: held_within(trace, rungs, path) for name, path in paths.items()}


def _spent_by_keepalive(trace: MinuteTrace, keep: Seconds) -> NDArray[np.float64]:
    return spent_by(trace, np.array([_held([KeepAlive(keep)], row)[0] for row in trace.needed.tolist()]))


def _rungs(work: Work) -> list[Rungs]:
    return [rungs_of(needed, memory) for needed, memory in zip(work.needed, work.memory_gb, strict=True)]


def _pieces(trace: MinuteTrace, policies: dict[str, Made], processes: int) -> list[Work]:
    count = len(trace.names)
    size = max(1, -(-count // (processes * CHUNKS)))
    rows, memory = [tuple(row) for row in trace.needed.tolist()], trace.memory_gb.tolist()
    return [
        Work(group, first, tuple(rows[first : first + size]), tuple(memory[first : first + size]))
        for group in _alike(policies)
        for first in range(0, count, size)
    ]


def _alike(policies: dict[str, Made]) -> list[tuple[tuple[str, Made], ...]]:
    """Policies that remember alike and only hold otherwise go together: ours learns once for all prices. They come
    first, since they take longest."""
    ours = tuple(one for one in policies.items() if isinstance(one[1], OURS))
    others: list[tuple[tuple[str, Made], ...]] = [(one,) for one in policies.items() if not isinstance(one[1], OURS)]
    return [ours, *others] if ours else others


@contextmanager
def _done(
    pieces: Sequence[Work], run: Callable[[Work], R], trace: MinuteTrace, jobs: int
) -> Iterator[Iterator[tuple[Work, R]]]:
    processes = min(jobs or os.cpu_count() or 1, len(pieces))
    if processes <= 1 or sum(len(work.needed) for work in pieces) * trace.minutes < WORTH_A_PROCESS:
        yield ((work, run(work)) for work in pieces)
        return
    with spread(run, pieces, processes) as done:
        yield ((pieces[at], found) for at, found in done)


def held_by(work: Work) -> Held:
    """What each policy held of each model in each grain (policies x models x grains): decided at the end of the grain
    before, from the past alone."""
    rows = []
    for needed, memory in zip(work.needed, work.memory_gb, strict=True):
        rows.append(_held([_of_model(made, needed, memory) for _, made in work.policies], needed))
    return np.array(rows, dtype=np.int64).transpose(1, 0, 2)


def _of_model(made: Made, needed: tuple[int, ...], memory_gb: float) -> AnyPolicy:
    if isinstance(made, Foreseeing):
        return Oracle(needed)
    return made.of(memory_gb) if isinstance(made, RelumeByMemory) else made


def _held(policies: Sequence[AnyPolicy], needed: Sequence[int]) -> list[list[int]]:
    remembers = policies[0]
    state = remembers.begin()
    grains = []
    for now in needed:
        grains.append([policy.hold(state) for policy in policies])
        state = remembers.after(state, now)
    return [list(row) for row in zip(*grains, strict=True)]


def flaps(held: Held) -> int:
    """How often more was held within `FLAP` grains after less had been."""
    moves = np.sign(np.diff(held, axis=1))
    lowered = np.zeros_like(moves, dtype=bool)
    for back in range(1, FLAP + 1):
        lowered[:, back:] |= moves[:, :-back] < 0
    return int(((moves > 0) & lowered).sum())
