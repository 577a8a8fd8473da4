"""Submit tasks one after the other to a pool that only fills up, and measure how well it fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from preemption.core.gpus.choosing import Chooser
from preemption.core.gpus.shapes import Task

Report = Callable[[int], None]
"""Told now and then how many tasks were submitted."""

REPORT_EVERY = 100


@dataclass(frozen=True, slots=True)
class Filled:
    """How a pool was filled. Shares are of all cards of the pool.

    `arrived`: what all tasks together asked for; `allocated`: what those that were placed hold at the end;
    `at_full_arrivals`: what was held when as much had arrived as the pool has, None when that never was.
    `fragmentation`: what of all cards is free at the end and of no use to the typical task (F).
    """

    placed: int
    failed: int
    arrived: float
    allocated: float
    at_full_arrivals: float | None
    fragmentation: float


def fill(chooser: Chooser, tasks: Iterable[tuple[Task, float]], report: Report | None = None) -> Filled:
    """Place each task (with its draw, for the random policy) where the policy says; what fits nowhere fails for
    good."""
    total = max(1, chooser.space.gpu_total)
    placed = failed = arrived = allocated = 0
    at_full: float | None = None
    for task, draw in tasks:
        arrived += task.gpu_milli
        spot = chooser.choose(task, draw)
        if spot is None:
            failed += 1
        else:
            chooser.space.take(task, spot)
            placed += 1
            allocated += task.gpu_milli
        if at_full is None and arrived >= total:
            at_full = allocated / total
        if report is not None and (placed + failed) % REPORT_EVERY == 0:
            report(placed + failed)
    return Filled(placed, failed, arrived / total, allocated / total, at_full, chooser.fragmentation.ratio())
