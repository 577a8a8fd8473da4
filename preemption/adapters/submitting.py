"""In which order, and how often, the pods of a file are submitted. Repeatable: the seed says all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from preemption.core.gpus.shapes import Task

Submission = tuple[Task, float]
"""A task, and the draw in [0, 1) that the random policy takes for it."""

SATURATED: Final = 1.3
"""As much of the pool's cards is asked for as the published simulations go to: by then nothing more fits."""

MOST_DRAWN: Final = 1_000_000
"""Pods that are drawn in addition, at most."""


def in_order(tasks: Sequence[Task]) -> list[Submission]:
    """Each pod once, as the file has them."""
    draw = random.Random(0)  # noqa: S311 - a repeatable draw, no secret
    return [(task, draw.random()) for task in tasks]


def saturating(tasks: Sequence[Task], capacity: int, seed: int, arrivals: float = SATURATED) -> list[Submission]:
    """All pods in an order that the seed draws, then more that it draws among them, until all together ask for
    `arrivals` times the `capacity` (thousandths of cards). ValueError: that would take more than a million."""
    draw = random.Random(seed)  # noqa: S311 - a repeatable draw, no secret
    chosen = list(tasks)
    draw.shuffle(chosen)
    asked = sum(task.gpu_milli for task in chosen)
    while asked and asked < arrivals * capacity:
        if len(chosen) - len(tasks) >= MOST_DRAWN:
            raise ValueError(f"the pods ask for so little that more than {MOST_DRAWN} would have to be drawn")
        chosen.append(draw.choice(tasks))
        asked += chosen[-1].gpu_milli
    return [(task, draw.random()) for task in chosen]
