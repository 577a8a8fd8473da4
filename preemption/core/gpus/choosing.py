"""Where one task goes: four policies over the same candidates. Ties are broken the same way always.

* ``fgd``: Fragmentation Gradient Descent as published (Weng et al., ATC 2023): the least growth of F, as the whole
  number ``100 · sigmoid(-ΔF)`` with ΔF in cards, which their simulator gives the scheduler; of equals the best fit.
* ``relume``: ours: the least of ΔF + ΔS + a hundredth of what the node has left. F as above, exactly. S are the cards
  that lack the cores to be filled (`Fragmentation.stranded`): where cards are many and cores few, light tasks go, and
  heavy ones to nodes with cores to spare. The hundredth is the best fit. Weights 1, 1 and 0.01 were the best of those
  that were tried on four mixes of generated clusters (docs/decisions/0020-placement.md). Several cards that do not
  reach each other over NVLink cost what is lost by that (`preemption.core.gpus.topology`).
* ``bestfit``: the node that has least left, CPU and cards counted as shares of 128 cores and 8 cards (their baseline).
* ``random``: any node and card where it fits; the caller draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from preemption.core.gpus.candidates import Candidates, candidates, losses, spot_at
from preemption.core.gpus.mix import Fragmentation, Mix
from preemption.core.gpus.shapes import CPU_PER_CARD, LEFT_PARTS, MILLI, Spot, Task
from preemption.core.gpus.space import MOST_NEEDS, Ints, Space

WORST = np.iinfo(np.int64).max
"""The score of a node where a task does not fit."""


class Policy(StrEnum):
    """How to place."""

    RELUME = "relume"
    FGD = "fgd"
    BESTFIT = "bestfit"
    RANDOM = "random"


@dataclass(slots=True)
class _Scored:
    """What is remembered for one task: by node its score (less is better), the card, and of which version that is."""

    score: Ints
    column: Ints
    version: Ints


class Chooser:
    """Chooses in one space under one policy.

    Scores of nodes that did not change since the last look are remembered for each task; so placing costs what changed.
    """

    def __init__(self, space: Space, policy: Policy, mix: Mix) -> None:
        self.space = space
        self.policy = policy
        self.fragmentation = Fragmentation(space, mix)
        self._before = self.fragmentation.now()
        self._before_version = space.version.copy()
        self._known: dict[Task, _Scored] = {}

    def choose(self, task: Task, draw: float = 0.0, costs: Ints | None = None) -> Spot | None:
        """The best spot now, or None.

        `draw` in [0, 1) picks for the random policy. `costs` by node, in thousandths of a card, are added to what a
        spot costs: what it takes to bring cold weights to a node, or to be far from the rest of a gang.
        """
        if self.policy is Policy.RANDOM:
            return self._any(task, draw)
        scored = self._scored(task)
        score = (
            scored.score
            if costs is None
            else np.where(scored.score < WORST, scored.score + costs * self._per_card() // MILLI, WORST)
        )
        least = int(score.min(initial=WORST))
        if least == WORST:
            return None
        able = np.nonzero(score == least)[0]
        row = int(able[np.argmin(self._left(able))])
        return spot_at(self.space, task, row, int(scored.column[row]))

    def _per_card(self) -> int:
        """What a whole card's cost is in the policy's scores. (FGD's steps are 25 a card where nothing changes.)"""
        per_card = {
            Policy.RELUME: LEFT_PARTS * CPU_PER_CARD * MILLI * self.fragmentation.scale,
            Policy.FGD: 25,
            Policy.BESTFIT: CPU_PER_CARD * MILLI * (MILLI + 1),
        }
        return per_card.get(self.policy, 0)

    def _left(self, rows: Ints) -> Ints:
        return np.asarray(self.space.cpu[rows] + CPU_PER_CARD * self.space.free[rows].sum(axis=1))

    def _any(self, task: Task, draw: float) -> Spot | None:
        rows = np.nonzero(self.space.fits(task))[0]
        if task.gpus != 1 or not rows.size:
            return spot_at(self.space, task, int(rows[int(draw * len(rows))]), -1) if rows.size else None
        which, columns = np.nonzero(self.space.fits_cards(task, rows))
        at = int(draw * len(which))
        return spot_at(self.space, task, int(rows[which[at]]), int(columns[at]))

    def _scored(self, task: Task) -> _Scored:
        known = self._known.get(task)
        if known is None:
            if len(self._known) >= MOST_NEEDS:
                self._known.clear()
            count = len(self.space.nodes)
            known = self._known[task] = _Scored(
                np.full(count, WORST), np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
            )
        stale = np.nonzero(known.version != self.space.version)[0]
        if stale.size:
            known.version[stale] = self.space.version[stale]
            known.score[stale] = WORST
            rows = stale[self.space.fits(task, stale)]
            if rows.size:
                ways = candidates(self.space, task, rows)
                score = self._score(ways)
                if task.gpus > 1 and self.space.has_domains and self.policy is Policy.RELUME:
                    score = score + losses(self.space, task, ways.rows) * self._per_card() // MILLI
                self._keep_best(known, ways, score)
        return known

    def _keep_best(self, known: _Scored, ways: Candidates, score: Ints) -> None:
        """Of each node the best way; of equals the first card."""
        order = np.lexsort((ways.columns, score, ways.rows))
        rows, first = np.unique(ways.rows[order], return_index=True)
        best = order[first]
        known.score[rows], known.column[rows] = score[best], ways.columns[best]

    def _score(self, ways: Candidates) -> Ints:
        if self.policy is Policy.BESTFIT:
            return self._bestfit_score(ways)
        growth = self._growth(ways)
        if self.policy is Policy.FGD:
            return published_score(growth / (MILLI * self.fragmentation.scale))
        return self._relume_score(ways, growth)

    def _growth(self, ways: Candidates) -> Ints:
        """How much F grows (times its scale), by way."""
        stale = np.nonzero(self._before_version != self.space.version)[0]
        if stale.size:
            space = self.space
            self._before[stale] = self.fragmentation.of(stale, space.cpu[stale], space.free[stale])
            self._before_version[stale] = space.version[stale]
        after = self.fragmentation.of(ways.rows, ways.cpu, ways.free, ways.state)
        return np.asarray(after - self._before[ways.rows])

    def _bestfit_score(self, ways: Candidates) -> Ints:
        """What the node has left; then what the card has left."""
        node = ways.cpu + CPU_PER_CARD * ways.free.sum(axis=1)
        card = ways.free[np.arange(len(ways.rows)), np.maximum(ways.columns, 0)]
        return np.asarray(node * (MILLI + 1) + card)

    def _relume_score(self, ways: Candidates, growth: Ints) -> Ints:
        """ΔF + ΔS + 0.01 · what is left (cores counted as cards): see the module's docstring."""
        space, of = self.space, self.fragmentation
        before = of.stranded(space.cpu[ways.rows], space.free[ways.rows])
        growth = growth + of.stranded(ways.cpu, ways.free) - before
        left = ways.cpu + CPU_PER_CARD * ways.free.sum(axis=1)
        return np.asarray(LEFT_PARTS * CPU_PER_CARD * growth + of.scale * left)


def published_score(growth: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    """The published score of a growth of F in cards, turned round so that less is better: -int(100 ·
    sigmoid(-growth))."""
    bounded = np.clip(growth, -50.0, 50.0)
    return -(100.0 / (1.0 + np.exp(bounded))).astype(np.int64)
