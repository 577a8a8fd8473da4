"""How many replicas of one kind each node could hold, as victims leave: plain numbers, since it is asked thousands of
times a plan, for one node at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from preemption.core.gpus.mig import family
from preemption.core.gpus.shapes import Task
from preemption.core.gpus.space import NEVER, Space
from preemption.core.reclaim.values import Held


@dataclass(slots=True)
class NodeRoom:
    """One node, and how many replicas of `task` it could hold. Change it with `free`, on a `copy`."""

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

    def release(self, held: Iterable[Held]) -> None:
        """These places on this node become free."""
        for one in held:
            self.cpu += one.task.cpu_milli
            self.memory += one.task.memory_bytes
            for card in one.spot.cards:
                if one.task.profile:
                    self.state[card] &= ~family(self.families[card]).profiles[one.task.profile].bits(one.spot.start)
                else:
                    self.free[card] += one.spot.milli

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


def node_room(space: Space, row: int, task: Task) -> NodeRoom:
    """A node as it is now."""
    cards = space.nodes[row].cards
    need = [NEVER] * space.free.shape[1] if task.profile else space.need(task)[row].tolist()
    families = tuple(card.family for card in cards) + ("",) * (space.free.shape[1] - len(cards))
    return NodeRoom(
        task, int(space.cpu[row]), int(space.memory[row]), space.free[row].tolist(), need, space.state[row].tolist(),
        families, bool(space.accepts(task.models)[row]),
    )  # fmt: skip
