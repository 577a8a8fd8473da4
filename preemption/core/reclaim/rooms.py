"""How many replicas of one kind each node could hold, as victims leave: plain numbers, since it is asked thousands of
times a plan, for one node at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preemption.core.gpus.mig import family
from preemption.core.gpus.parts import NEVER
from preemption.core.gpus.shapes import Task
from preemption.core.gpus.space import Space
from preemption.core.reclaim.values import Held


@dataclass(slots=True)
class NodeRoom:
    """One node, and how many replicas of `task` it could hold. Change it with `move`, on a `copy`."""

    task: Task
    cpu: int
    memory: int
    free: list[int]
    need: list[int]
    """By card: thousandths that a replica takes of it."""
    state: list[int]
    families: tuple[str, ...]
    accepts: bool

    def copy(self) -> NodeRoom:
        """One more that changes by itself."""
        return NodeRoom(
            self.task,
            self.cpu,
            self.memory,
            self.free.copy(),
            self.need,
            self.state.copy(),
            self.families,
            self.accepts,
        )

    def move(self, held: Held, sign: int) -> None:
        """A place on this node becomes free (`sign` 1), or is held again (-1)."""
        self.cpu += sign * held.task.cpu_milli
        self.memory += sign * held.task.memory_bytes
        for card in held.spot.cards:
            if held.task.profile:
                self.state[card] ^= family(self.families[card]).profiles[held.task.profile].bits(held.spot.start)
            else:
                self.free[card] += sign * held.spot.milli

    def uses(self, card: int) -> bool:
        """Whether a replica could be on this card, were nobody on it."""
        if self.task.profile:
            name = self.families[card]
            return bool(name) and self.task.profile in family(name).profiles
        return self.need[card] < NEVER

    def has_cores(self, replicas: int) -> bool:
        """Whether there are cores and memory for so many replicas now."""
        task = self.task
        return self.cpu >= replicas * task.cpu_milli and self.memory >= replicas * task.memory_bytes

    def count(self) -> int:
        """How many replicas fit."""
        if not self.accepts:
            return 0
        task, most = self.task, NEVER
        if task.cpu_milli:
            most = max(0, self.cpu) // task.cpu_milli
        if task.memory_bytes:
            most = min(most, max(0, self.memory) // task.memory_bytes)
        return min(most, self._on_cards() // task.gpus) if task.gpus else most

    def _on_cards(self) -> int:
        if self.task.profile:
            return sum(
                family(name).room(self.task.profile, state)
                for name, state in zip(self.families, self.state, strict=True)
                if name and self.task.profile in family(name).profiles
            )
        return sum(max(0, free) // need for free, need in zip(self.free, self.need, strict=True))


Key = tuple[str, tuple[int, ...]]
"""A unit: a job, and which of its members."""


class NodeTrial:
    """A node on paper, while units leave it and come back. A member that two units name (a whole job, and one of its
    surplus members) leaves once."""

    def __init__(self, room: NodeRoom, here: Mapping[Key, Sequence[tuple[int, Held]]]) -> None:
        self._room = room.copy()
        self._here = here
        self._left: dict[tuple[str, int], int] = {}

    def leave(self, key: Key) -> None:
        """A unit leaves."""
        for member, held in self._here[key]:
            times = self._left.get((key[0], member), 0)
            self._left[key[0], member] = times + 1
            if not times:
                self._room.move(held, 1)

    def back(self, key: Key) -> None:
        """A unit that left is back."""
        for member, held in self._here[key]:
            self._left[key[0], member] -= 1
            if not self._left[key[0], member]:
                self._room.move(held, -1)

    def count(self) -> int:
        """How many replicas fit."""
        return self._room.count()


def node_room(space: Space, row: int, task: Task) -> NodeRoom:
    """A node as it is now."""
    cards = space.nodes[row].cards
    need = [NEVER] * space.free.shape[1] if task.profile else space.need(task)[row].tolist()
    families = tuple(card.family for card in cards) + ("",) * (space.free.shape[1] - len(cards))
    return NodeRoom(
        task, int(space.cpu[row]), int(space.memory[row]), space.free[row].tolist(), need, space.state[row].tolist(),
        families, bool(space.accepts(task.models)[row]),
    )  # fmt: skip
