"""What is free in a pool of nodes, as arrays: one question about ten thousand cards is one expression.

Rows are nodes, columns their cards (as many columns as the largest node has cards). A `Space` is changed by `take` and
`give` only; `copy` is cheap, so a plan is tried on a copy and thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from preemption.core.gpus.mig import family
from preemption.core.gpus.parts import NEVER, Kind, part_of
from preemption.core.gpus.shapes import Mode, NodeSpec, Spot, Task

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_NEEDS: Final = 4096
"""So many tasks' needs are remembered; real pools have some hundred kinds."""


class Space:
    """Nodes with what they have and what of it is free. Equal inputs give equal arrays."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self.nodes = tuple(nodes)
        self.index = {node.name: row for row, node in enumerate(nodes)}
        if len(self.index) != len(nodes):
            raise ValueError("two nodes have the same name")
        columns = max((len(node.cards) for node in nodes), default=0) or 1
        shape = (len(nodes), columns)
        self.cpu_total: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory_total: Ints = np.array([node.memory_bytes for node in nodes], dtype=np.int64)
        self.cpu, self.memory = self.cpu_total.copy(), self.memory_total.copy()
        self.mode: Ints = np.zeros(shape, dtype=np.int64)
        self.turns: Ints = np.zeros(shape, dtype=np.int64)
        self.usable: Ints = np.zeros(shape, dtype=np.int64)
        self.size: Ints = np.zeros(shape, dtype=np.int64)
        """Thousandths of a card that there are: 1000, and less of a turn of a time-sliced one, or a MIG instance."""
        self.free: Ints = np.zeros(shape, dtype=np.int64)
        """Thousandths that are free; of a MIG card: of its memory slices."""
        self.state: Ints = np.zeros(shape, dtype=np.int64)
        """Of MIG cards: `preemption.core.gpus.mig`."""
        self.version: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Counts up with each change of a node."""
        self.kinds: Ints = np.zeros(shape, dtype=np.int64)
        """Cards of one MIG family have the same number; 0: no MIG."""
        self.models = np.array([node.model for node in nodes], dtype=np.str_)
        self.families: dict[str, Flags] = {}
        """By MIG family: which cards are of it."""
        for row, node in enumerate(nodes):
            for column, card in enumerate(node.cards):
                self.mode[row, column], self.usable[row, column] = card.mode, card.usable_bytes
                self.turns[row, column] = card.turns
                self.size[row, column] = self.free[row, column] = Kind(card.usable_bytes, card.turns).size
                if card.mode is Mode.MIG:
                    self.size[row, column] = self.free[row, column] = family(card.family).milli
                    self.families.setdefault(card.family, np.zeros(shape, dtype=np.bool_))[row, column] = True
                    self.kinds[row, column] = 1 + list(self.families).index(card.family)
        self.is_plain = bool(((self.mode == Mode.ABSENT) | (self.mode == Mode.SHARED)).all())
        """Whether every card is whole or shared: no MIG, no turns."""
        self.has_domains = any(c.link is not None or c.numa is not None for node in nodes for c in node.cards)
        """Whether it is known of any card which others it reaches how."""
        self.network = _network(nodes)
        """By node and level: a number for the part of the network that it is in; -1: not known."""
        self._has_models: dict[tuple[str, ...], Flags] = {}
        self._needs: dict[Task, Ints] = {}

    @property
    def gpu_total(self) -> int:
        """Thousandths of all cards."""
        return int(self.size.sum())

    @property
    def gpu_free(self) -> int:
        """Thousandths of all cards that are free."""
        return int(self.free.sum())

    def copy(self) -> Space:
        """One more, that changes by itself. What never changes is shared."""
        twin = object.__new__(Space)
        twin.__dict__.update(self.__dict__)
        for name in ("cpu", "memory", "free", "state", "version"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def take(self, task: Task, spot: Spot) -> None:
        """`task` holds `spot` from now on. What is free may fall below zero, as where a node shrank under its work."""
        self._move(task, spot, 1)

    def give(self, task: Task, spot: Spot) -> None:
        """`task` holds `spot` no more."""
        self._move(task, spot, -1)

    def accepts(self, models: tuple[str, ...]) -> Flags:
        """By node: whether its kind of cards is one of `models`; empty: all are."""
        known = self._has_models.get(models)
        if known is None:
            if len(self._has_models) >= MOST_NEEDS:
                self._has_models.clear()
            known = np.isin(self.models, models) if models else np.ones(len(self.nodes), dtype=np.bool_)
            self._has_models[models] = known
        return known

    def need(self, task: Task) -> Ints:
        """By card: how many thousandths `task` would take of it, `NEVER` where it must not use it. Not of MIG profiles.

        The rule is `preemption.core.gpus.parts`.
        """
        known = self._needs.get(task)
        if known is None:
            if len(self._needs) >= MOST_NEEDS:
                self._needs.clear()
            known = self._needs[task] = self._work_out_need(task)
        return known

    def _work_out_need(self, task: Task) -> Ints:
        kinds, which = self._kinds_of_parts()
        takes = [
            part_of(task.milli, task.gpu_bytes, Kind(usable, turns)) if mode in (Mode.SHARED, Mode.SLICED) else NEVER
            for mode, usable, turns in kinds.T.tolist()
        ]
        return np.array(takes, dtype=np.int64)[which].reshape(self.free.shape)

    def _kinds_of_parts(self) -> tuple[Ints, Ints]:
        """What differs in how much is taken of a card (mode, usable bytes, turns), and by card which of these it is."""
        if self.is_plain and not self.usable.any():
            return np.array([[Mode.ABSENT, Mode.SHARED], [0, 0], [0, 0]]), self.mode.ravel()
        kinds, which = np.unique(
            np.stack([self.mode, self.usable, self.turns]).reshape(3, -1), axis=1, return_inverse=True
        )
        return kinds, which.ravel()

    def held_spot(self, row: int, columns: tuple[int, ...], task: Task) -> Spot:
        """The spot of one who holds these cards: all of a card on which it should not be at all."""
        if task.profile or not columns:
            return Spot(row, columns, 0, start=0 if task.profile else -1)
        takes = min(int(self.need(task)[row, columns[0]]), int(self.size[row, columns[0]]))
        return Spot(row, columns, takes)

    def takes(self, task: Task, spot: Spot, column: int) -> int:
        """Thousandths of a card that one who holds this spot has of it; all of a MIG instance."""
        return int(self.size[spot.node, column]) if task.profile else spot.milli

    def fits_cards(self, task: Task, rows: Ints | slice = slice(None)) -> Flags:
        """By card: whether `task` could use it now."""
        if not task.profile:
            return np.asarray(self.free[rows] >= self.need(task)[rows])
        fits = np.zeros(self.free.shape, dtype=np.bool_)
        for name, cards in self.families.items():
            if task.profile in family(name).profiles:
                fits[cards] = family(name).fits(task.profile)[self.state[cards]]
        return fits[rows]

    def fits(self, task: Task, rows: Ints | slice = slice(None)) -> Flags:
        """By node: whether `task` fits on it now."""
        ok = (self.cpu[rows] >= task.cpu_milli) & (self.memory[rows] >= task.memory_bytes)
        ok &= self.accepts(task.models)[rows]
        if task.gpus:
            ok &= self.fits_cards(task, rows).sum(axis=1) >= task.gpus
        return np.asarray(ok)

    def room(self, task: Task) -> Ints:
        """By node: how many such tasks fit on it now, if nothing else comes."""
        many = np.full(len(self.nodes), NEVER, dtype=np.int64)
        for free, wanted in ((self.cpu, task.cpu_milli), (self.memory, task.memory_bytes)):
            if wanted:
                many = np.minimum(many, np.maximum(free, 0) // wanted)
        if task.gpus:
            many = np.minimum(many, self._room_on_cards(task) // task.gpus)
        return np.where(self.accepts(task.models), many, 0)

    def slices(self, row: int, column: int) -> int:
        """How many memory slices a MIG card has."""
        return family(self.nodes[row].cards[column].family).slices

    def _room_on_cards(self, task: Task) -> Ints:
        if task.profile:
            return self._room_of_profile(task.profile)
        return np.asarray((np.maximum(self.free, 0) // self.need(task)).sum(axis=1))

    def _room_of_profile(self, profile: str) -> Ints:
        room = np.zeros(self.free.shape, dtype=np.int64)
        for name, cards in self.families.items():
            tables = family(name)
            if profile in tables.profiles:
                room[cards] = [tables.room(profile, int(state)) for state in self.state[cards]]
        return np.asarray(room.sum(axis=1))

    def _move(self, task: Task, spot: Spot, sign: int) -> None:
        row = spot.node
        self.cpu[row] -= sign * task.cpu_milli
        self.memory[row] -= sign * task.memory_bytes
        for column in spot.cards:
            if task.profile:
                self._move_instance(task.profile, spot, column, sign)
            else:
                self.free[row, column] -= sign * spot.milli
        self.version[row] += 1

    def _move_instance(self, profile: str, spot: Spot, column: int, sign: int) -> None:
        tables = family(self.nodes[spot.node].cards[column].family)
        bits = tables.profiles[profile].bits(spot.start)
        state = int(self.state[spot.node, column])
        if (state & bits) != (0 if sign > 0 else bits):
            raise ValueError(
                f"{profile} at memory slice {spot.start} of {self.nodes[spot.node].name} is not there to move"
            )
        state ^= bits
        self.state[spot.node, column] = state
        self.free[spot.node, column] = tables.free_milli(state)


def _network(nodes: Sequence[NodeSpec]) -> Ints:
    levels = max((len(node.network) for node in nodes), default=0)
    numbers: dict[tuple[int, str], int] = {}
    table = np.full((len(nodes), levels), -1, dtype=np.int64)
    for row, node in enumerate(nodes):
        for level, name in enumerate(node.network):
            if name:
                table[row, level] = numbers.setdefault((level, name), len(numbers))
    return table
