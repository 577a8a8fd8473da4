"""The pool as it stands in the log, for people: who holds what, and how fragmented the rest is. What would become of
more work in it: `preemption.core.reclaim.asking`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from events.types.grants import Placement
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from preemption.core.gpus.cards import node_spec
from preemption.core.gpus.mix import Fragmentation, Mix
from preemption.core.gpus.shapes import Spot, Task
from preemption.core.gpus.space import Ints, Space
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.placement import lack
from preemption.core.tasks import task_of_need

OF_TRAINING: Final = "training/"
"""What the model of a holder begins with that is a member of a training job."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One replica, or one member of a training job (`model` is ``training/JOB``), that has a place."""

    replica: str
    model: str
    placement: Placement
    resources: Resources


class Pool:
    """Nodes and holders at one moment. `cordoned`: cards, by node and id, on which nothing new is placed."""

    def __init__(
        self, nodes: Sequence[CardsObserved], holders: Iterable[Holder], typical: Iterable[Resources],
        cordoned: Iterable[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self.nodes = tuple(nodes)
        self.holders = tuple(holders)
        self.space = Space([node_spec(node) for node in nodes])
        self.mix = mix_of([*typical, *(holder.resources for holder in self.holders)])
        for holder in self.holders:
            task = task_of(holder.resources)
            spot = self.spot(holder.placement, task)
            if spot is not None:
                self.space.take(task, spot)
        self.unheld = self.space.copy()
        """What nobody holds, cordoned cards too."""
        for node, card in cordoned:
            self._close(node, card)

    @cached_property
    def fragmentation(self) -> float:
        """F as a share of all cards: what is free and of no use to the typical replica here."""
        return Fragmentation(self.space, self.mix).ratio()

    @property
    def cards(self) -> list[Card]:
        """All of them, whoever holds them."""
        return [card for node in self.nodes for card in node.cards]

    def free_share(self, node: str, card: str) -> float:
        """The share of an entry of the inventory (a card, a turn, a MIG instance) that nobody holds."""
        row = self.space.index[node]
        column = [spec.id for spec in self.space.nodes[row].cards].index(card)
        return max(0, int(self.unheld.free[row, column])) / int(self.space.size[row, column])

    def fragmented_milli(self, node: str) -> float:
        """F of one node, in thousandths of a card."""
        measure = Fragmentation(self.space, self.mix)
        return float(measure.now()[self.space.index[node]]) / measure.scale

    def by_training(self) -> Ints:
        """Thousandths of each card that training holds."""
        total = np.zeros(self.space.free.shape, dtype=np.int64)
        for holder in self.holders:
            spot = self.spot(holder.placement, task_of(holder.resources))
            if spot is not None and holder.model.startswith(OF_TRAINING):
                for column in spot.cards:
                    total[spot.node, column] += self.space.takes(task_of(holder.resources), spot, column)
        return total

    def partial(self) -> Ints:
        """1 for cards that are given out in parts now."""
        flags = np.zeros(self.space.free.shape, dtype=np.int64)
        for holder in self.holders:
            task = task_of(holder.resources)
            spot = self.spot(holder.placement, task)
            if spot is not None and spot.cards and not task.profile and not task.whole:
                flags[spot.node, list(spot.cards)] = 1
        return flags

    def ledger(self) -> Ledger:
        """All of it as the allocator's ledger has it."""
        ledger = Ledger()
        for node in self.nodes:
            ledger.set_node(node)
        for holder in self.holders:
            ledger.hold(holder.replica, Holding(holder.placement, need_of(holder.resources)))
        return ledger

    def lacks(self, resources: Resources) -> str:
        """Why there is no place for one of these, in the allocator's own words."""
        return lack(self.ledger(), need_of(resources)).message

    def spot(self, placement: Placement, task: Task) -> Spot | None:
        """A placement in the pool's own indices; None where its node or cards are not there."""
        row = self.space.index.get(placement.node)
        if row is None:
            return None
        ids = {spec.id: column for column, spec in enumerate(self.space.nodes[row].cards)}
        if any(card not in ids for card in placement.gpus):
            return None
        return self.space.held_spot(row, tuple(ids[card] for card in placement.gpus), task)

    def _close(self, node: str, card: str) -> None:
        row = self.space.index.get(node)
        seen = next((one for one in self.nodes if one.node == node), None)
        if row is None or seen is None:
            return
        for column, known in enumerate(seen.cards):
            if known.id != card:
                continue
            if known.profile and not int(self.space.state[row, column]):
                self.space.take(
                    Task(cpu_milli=0, memory_bytes=0, gpus=1, profile=known.profile), Spot(row, (column,), 0, start=0)
                )
            elif not known.profile:
                self.space.free[row, column] = min(0, int(self.space.free[row, column]))
                self.space.version[row] += 1


def task_of(resources: Resources) -> Task:
    """A replica's resources as a task."""
    return task_of_need(need_of(resources))


def mix_of(resources: Iterable[Resources]) -> Mix:
    """What usually comes here: everything that is declared or held, as often as it is."""
    counted = Counter(task_of(one) for one in resources)
    tasks = sorted(counted, key=lambda task: (-counted[task], repr(task)))
    return Mix(tuple(tasks), tuple(counted[task] for task in tasks))
