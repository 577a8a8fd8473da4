"""What usually comes, and how much of what is free it could not use: the fragmentation measure F.

F is that of *Fragmentation Gradient Descent* (Weng et al., USENIX ATC 2023). With R_g the free thousandths of card g, a
node's fragmentation for a task m is all of it, Σ R_g, when m cannot run there (too few cards, too little CPU, another
kind of card, or m takes no GPU at all), else what m could not use: Σ over the cards with R_g less than m takes. A
node's F is the mean over the typical tasks, weighted with how often each comes; a pool's F the sum over its nodes.

Sums are kept as whole numbers (thousandths of a card times a task's count), so that equal states have equal F whatever
the order of the additions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from preemption.core.gpus.mig import family
from preemption.core.gpus.parts import NEVER
from preemption.core.gpus.shapes import MILLI, Task
from preemption.core.gpus.space import Flags, Ints, Space

COVER = 0.95
"""Share of the tasks that the typical ones cover: the paper's simulator takes the most frequent until then."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Typical tasks, the most frequent first, and how often each comes."""

    tasks: tuple[Task, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Sum of the counts."""
        return sum(self.counts)


def typical(tasks: Iterable[Task], cover: float = COVER) -> Mix:
    """The most frequent tasks that make up `cover` of all. Memory is left out, as in the paper."""
    counted = Counter(replace(task, memory_bytes=0) for task in tasks)
    wanted, reached, chosen = cover * counted.total(), 0, []
    for task, count in counted.most_common():
        if reached >= wanted:
            break
        chosen.append((task, count))
        reached += count
    return Mix(tuple(task for task, _ in chosen), tuple(count for _, count in chosen))


class Fragmentation:
    """F of nodes of one space under one mix. What depends on neither what is free nor who comes is worked out once."""

    def __init__(self, space: Space, mix: Mix) -> None:
        self._space = space
        self.mix = mix
        self.scale = max(1, mix.total)
        """What F must be divided by to be thousandths of a card."""
        tasks = mix.tasks
        self._counts = np.array(mix.counts, dtype=np.int64)
        self._cpu = np.array([task.cpu_milli for task in tasks], dtype=np.int64)
        self._gpus = np.array([task.gpus for task in tasks], dtype=np.int64)
        filling = [index for index, task in enumerate(tasks) if task.gpu_milli and task.cpu_milli]
        self._gpu_milli = np.array([tasks[index].gpu_milli for index in filling], dtype=np.int64)
        self._cpu_per_fill, self._fill_counts = self._cpu[filling], self._counts[filling]
        none = np.zeros(len(space.nodes), dtype=np.bool_)
        able = [space.accepts(task.models) & (task.gpus > 0) if task.gpus else none for task in tasks]
        self._able: Flags = np.stack(able, axis=1) if tasks else np.zeros((len(space.nodes), 0), dtype=np.bool_)
        self._need = self._needs(tasks)
        self._profiles = [(column, task.profile) for column, task in enumerate(tasks) if task.profile]

    def of(self, rows: Ints, cpu: Ints, free: Ints, state: Ints | None = None) -> Ints:
        """F (times `scale`) of nodes `rows`, were `cpu` [B], `free` and `state` [B, cards] what they have free."""
        usable = free[:, :, None] >= (self._need if self._need.ndim == 1 else self._need[rows])
        for column, profile in self._profiles:
            usable[:, :, column] = self._fits(profile, rows, self._space.state[rows] if state is None else state)
        all_free = free.sum(axis=1)
        small = all_free[:, None] - (free[:, :, None] * usable).sum(axis=1)
        runs = (usable.sum(axis=1) >= self._gpus) & (cpu[:, None] >= self._cpu) & self._able[rows]
        return np.asarray(np.where(runs, small, all_free[:, None]) @ self._counts)

    def stranded(self, cpu: Ints, free: Ints) -> Ints:
        """Thousandths of cards (times `scale`) that lack the cores to be filled, were `cpu` [B], `free` [B, cards]
        free.

        F looks one task ahead: a node that holds one more task counts as good for all that is free on it. This looks
        as far as the node can be filled: of R free thousandths, a task that takes k cores a card can fill cpu / k.
        """
        filled = cpu[:, None] * self._gpu_milli // self._cpu_per_fill
        return np.asarray(np.maximum(0, free.sum(axis=1)[:, None] - filled) @ self._fill_counts)

    def now(self) -> Ints:
        """F (times `scale`) of each node as it is."""
        space = self._space
        return self.of(np.arange(len(space.nodes)), space.cpu, space.free)

    def ratio(self) -> float:
        """F of the whole pool as a share of all its cards: 0 when everything free is of use, at most 1. (On paper more
        may be held of a card than there is; of such a card nothing is free.)"""
        space = self._space
        lost = self.of(np.arange(len(space.nodes)), space.cpu, np.maximum(space.free, 0))
        return float(lost.sum()) / self.scale / max(1, space.gpu_total)

    def _needs(self, tasks: tuple[Task, ...]) -> Ints:
        """Thousandths by typical task; by card too, unless all cards are alike in this."""
        if self._space.is_plain and not any(task.gpu_bytes or task.profile for task in tasks):
            return np.array([task.milli if task.gpus else MILLI for task in tasks], dtype=np.int64)
        never = np.full(self._space.free.shape, NEVER, dtype=np.int64)
        needs = [never if task.profile or not task.gpus else self._space.need(task) for task in tasks]
        return np.stack(needs, axis=2) if needs else np.zeros((*self._space.free.shape, 0), dtype=np.int64)

    def _fits(self, profile: str, rows: Ints, state: Ints) -> Flags:
        fits = np.zeros(state.shape, dtype=np.bool_)
        for name, cards in self._space.families.items():
            here = cards[rows]
            if profile in family(name).profiles:
                fits[here] = family(name).fits(profile)[state[here]]
        return fits
