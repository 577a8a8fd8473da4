"""Fragmentation Gradient Descent with loops and fractions, straight from the paper: what the arrays are checked
against."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import MILLI, NodeSpec, Task


class PlainNode:
    """A node as two numbers and a list."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.cpu, self.memory = spec.cpu_milli, spec.memory_bytes
        self.free = [MILLI] * len(spec.cards)


def fits(node: PlainNode, task: Task, *, memory: bool = True) -> bool:
    """Whether the task can run on the node."""
    if task.models and node.spec.model not in task.models:
        return False
    if node.cpu < task.cpu_milli or (memory and node.memory < task.memory_bytes):
        return False
    return sum(free >= task.milli for free in node.free) >= task.gpus


def fragmentation(node: PlainNode, mix: Mix) -> Fraction:
    """F of one node in cards."""
    total = Fraction(0)
    for task, count in zip(mix.tasks, mix.counts, strict=True):
        runs = task.gpus > 0 and fits(node, task, memory=False)
        lost = sum(free for free in node.free if not runs or free < task.milli)
        total += Fraction(count, mix.total) * Fraction(lost, MILLI)
    return total


def ways(node: PlainNode, task: Task) -> Iterator[tuple[int, ...]]:
    """The cards that the task may take."""
    able = [index for index, free in enumerate(node.free) if free >= task.milli]
    if task.gpus == 1:
        yield from ((index,) for index in able)
    elif len(able) >= task.gpus:
        yield tuple(able[: task.gpus])


def take(node: PlainNode, task: Task, cards: Sequence[int], sign: int = 1) -> None:
    """Take, or give back with `sign` -1."""
    node.cpu -= sign * task.cpu_milli
    node.memory -= sign * task.memory_bytes
    for card in cards:
        node.free[card] -= sign * task.milli


def score(growth: Fraction) -> int:
    """The published bucket of a growth of F."""
    return int(100 / (1 + math.exp(float(growth))))


def choose(nodes: Sequence[PlainNode], task: Task, mix: Mix) -> tuple[int, tuple[int, ...]] | None:
    """The published choice: highest score; of equals the node with least left before it, then the first."""
    best: tuple[tuple[int, int, int, tuple[int, ...]], tuple[int, tuple[int, ...]]] | None = None
    for row, node in enumerate(nodes):
        if not fits(node, task):
            continue
        before = fragmentation(node, mix)
        left = node.cpu + 16 * sum(node.free)
        for cards in ways(node, task):
            take(node, task, cards)
            rank = (-score(fragmentation(node, mix) - before), left, row, cards)
            take(node, task, cards, -1)
            if best is None or rank < best[0]:
                best = rank, (row, cards)
    return None if best is None else best[1]
