"""The pool's ledger as arrays, kept in step with it: what the planner and the placement of gangs look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from events.types.grants import Placement
from events.types.replicas import Card
from events.types.shared import Resources
from preemption.core.gpus.cards import alike_cards, best_units, card_units, node_spec
from preemption.core.gpus.mig import family
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import MILLI, Spot, Task
from preemption.core.gpus.space import Ints, Space
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.reclaim.values import Held
from preemption.core.tasks import task_of_need


class Mirror:
    """What is free, as a `Space` that follows a `Ledger`. Ask `sync` before each look."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._nodes: dict[str, object] = {}
        self._version = -1
        self._taken: dict[str, tuple[Holding, Held | None]] = {}
        self._worth: dict[str, dict[str, float]] = {}
        self._units: dict[str, float] = {}
        self._kinds: tuple[Card, ...] = ()
        """One card of each kind."""
        self.space = Space([])
        self.columns: list[dict[str, int]] = []
        """By row: the column of each card."""

    def set_units(self, own: Mapping[str, float]) -> None:
        """What cards are worth in A100s where their owner says so, by product."""
        if own != self._units:
            self._units = dict(own)
            self._rebuild()
            self._version = -1

    def sync(self) -> Space:
        """The space as the ledger stands now. Change copies of it only."""
        if self._version == self._ledger.version:
            return self.space
        if self._nodes != self._ledger.seen:
            self._rebuild()
        now = self._ledger.holdings
        changed = [name for name, (holding, _) in self._taken.items() if now.get(name) != holding]
        for name in changed:
            _, held = self._taken.pop(name)
            if held is not None:
                self.space.give(held.task, held.spot)
        for name, holding in now.items():
            if name not in self._taken:
                held = self.held(holding)
                held = held if held is not None and self._is_free(held) else None
                if held is not None:
                    self.space.take(held.task, held.spot)
                self._taken[name] = holding, held
        self._version = self._ledger.version
        return self.space

    def taken(self, names: Iterable[str]) -> tuple[Held, ...]:
        """What these hold in the space, by their names in the ledger."""
        found = (self._taken[name][1] for name in names if name in self._taken)
        return tuple(held for held in found if held is not None)

    def held(self, holding: Holding) -> Held | None:
        """A holding as the arrays know it; None where its node or cards are not there."""
        task = task_of_need(holding.need)
        spot = self._spot(holding.placement, task)
        return None if spot is None else Held(task, spot)

    def placement(self, spot: Spot) -> Placement:
        """A spot by names."""
        spec = self.space.nodes[spot.node]
        return Placement(node=spec.name, gpus=tuple(spec.cards[column].id for column in spot.cards))

    def by_card(self, holdings: Iterable[Holding]) -> Ints:
        """Thousandths of each card that these hold."""
        total = np.zeros(self.space.free.shape, dtype=np.int64)
        for holding in holdings:
            held = self.held(holding)
            if held is not None:
                for column in held.spot.cards:
                    total[held.spot.node, column] += self.space.takes(held.task, held.spot, column)
        return total

    def partial(self) -> Ints:
        """1 for cards that are given out in parts now."""
        flags = np.zeros(self.space.free.shape, dtype=np.int64)
        for _, held in self._taken.values():
            if held is not None and held.task.gpus and not held.task.profile and not held.task.whole:
                flags[held.spot.node, list(held.spot.cards)] = 1
        return flags

    def worth(self, holding: Holding) -> float:
        """What the cards, or parts of cards, of a holding are worth in A100s."""
        known = self._worth.get(holding.placement.node, {})
        held = self.held(holding)
        part = 1.0 if held is None or held.task.profile else held.spot.milli / MILLI
        return part * sum(known.get(card, 1.0) for card in holding.placement.gpus)

    def best_worth(self, task: Task) -> float:
        """What such work would have of the best card of the pool is worth, in A100s."""
        return best_units(self._kinds, task, self._units)

    def _rebuild(self) -> None:
        self._nodes = dict(self._ledger.seen)
        specs = [node_spec(seen) for _, seen in sorted(self._ledger.seen.items())]
        self.space = Space(specs)
        self.columns = [{card.id: column for column, card in enumerate(spec.cards)} for spec in specs]
        self._kinds = alike_cards(card for seen in self._ledger.seen.values() for card in seen.cards)
        worth = {(card.product, card.profile): card_units(card, self._units) for card in self._kinds}
        self._worth = {
            node: {card.id: worth[card.product, card.profile] for card in seen.cards}
            for node, seen in self._ledger.seen.items()
        }
        self._taken.clear()

    def _spot(self, placement: Placement, task: Task) -> Spot | None:
        row = self.space.index.get(placement.node)
        if row is None or any(card not in self.columns[row] for card in placement.gpus):
            return None
        return self.space.held_spot(row, tuple(self.columns[row][card] for card in placement.gpus), task)

    def _is_free(self, held: Held) -> bool:
        """Whether a MIG instance can be taken: not by two, however that came about."""
        if not held.task.profile or not held.spot.cards:
            return True
        row, column = held.spot.node, held.spot.cards[0]
        tables = family(self.space.nodes[row].cards[column].family)
        known = held.task.profile in tables.profiles
        return known and not int(self.space.state[row, column]) & tables.profiles[held.task.profile].bits(0)


def mix_of(resources: Iterable[Resources]) -> Mix:
    """What usually comes: everything that is declared, as often as it is."""
    counted = Counter[Task]()
    for one, count in Counter(resources).items():
        counted[task_of_need(need_of(one))] += count
    tasks = sorted(counted, key=lambda task: (-counted[task], repr(task)))[:64]
    return Mix(tuple(tasks), tuple(counted[task] for task in tasks))
