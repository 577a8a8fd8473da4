"""Policies over a trace of minutes: the same functions as elsewhere, over the cores, and what came of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoscaler.core.grains.oracle import Oracle
from autoscaler.core.grains.policy import Relume, RelumeByMemory
from deploy.simulation.minutes import MinuteTotals, MinuteTrace, account
from deploy.simulation.naming import AnyPolicy, Foreseeing, Made
from deploy.simulation.spreading import spread

FLAP: Final = 5
"""Grains within which more after less is a flap."""

WORTH_A_PROCESS: Final = 20_000
"""Decisions below which starting processes takes longer than it saves."""

CHUNKS: Final = 8
"""Pieces of work a process: enough that none waits long for the last."""

OURS: Final = (Relume, RelumeByMemory)

Held = NDArray[np.int64]
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


def replay(trace: MinuteTrace, policies: dict[str, Made], jobs: int, progress: Progress) -> dict[str, Outcome]:
    """What each policy did. `jobs`: processes; 0: one a core. Raises BrokenPolicy, ProcessDied."""
    held = {name: np.zeros_like(trace.needed) for name in policies}
    pieces = _pieces(trace, policies, jobs or os.cpu_count() or 1)
    with _done(pieces, trace, jobs) as done:
        for work, rows in done:
            for (name, _), of_policy in zip(work.policies, rows, strict=True):
                held[name][work.first : work.first + of_policy.shape[0]] = of_policy
            progress(rows.size)
    return {name: Outcome(account(trace, rows), rows.size, flaps(rows)) for name, rows in held.items()}


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
def _done(pieces: Sequence[Work], trace: MinuteTrace, jobs: int) -> Iterator[Iterator[tuple[Work, Held]]]:
    processes = min(jobs or os.cpu_count() or 1, len(pieces))
    if processes <= 1 or sum(len(work.needed) for work in pieces) * trace.minutes < WORTH_A_PROCESS:
        yield ((work, held_by(work)) for work in pieces)
        return
    with spread(held_by, pieces, processes) as done:
        yield ((pieces[at], held) for at, held in done)


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
