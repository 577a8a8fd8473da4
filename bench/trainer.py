"""What the trainer SDK costs a loop: the CPU of a `guard.step`, and from a notice to the step at which all ranks stop.

A step is measured with the watcher's thread at work, in CPU of the whole process. Ranks are threads here, each with a
watcher of its own, on a board in a folder; they step every millisecond or so, each at its own speed. Nothing is saved.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path

from bench.figures import Effort, Figure, Target, median
from preemption.trainer import CheckpointGuard, FolderBoard, Ranks
from preemption.trainer.notice import Notice
from preemption.trainer.report import Reporter
from preemption.trainer.watcher import POLL, Watcher

PATIENCE = 30.0


async def run(effort: Effort) -> list[Figure]:
    """Nanoseconds of CPU a step; milliseconds to the barrier at 2, 4 and 8 ranks."""
    steps = effort.size(2_000_000, 50_000)
    with tempfile.TemporaryDirectory() as folder:
        mine = [_steps(Path(folder), steps) for _ in range(effort.rounds)]
    empty = [_calls(steps) for _ in range(effort.rounds)]
    figures = [
        Figure("a guard.step while nothing is told", "ns CPU", median(mine), "an empty method", median(empty),
               Target(1000.0), low=min(mine), high=max(mine))
    ]  # fmt: skip
    for world in (2, 4, 8):
        waits = [_agree(world, seed) * 1000 for seed in range(effort.size(15, 2))]
        figures.append(
            Figure(f"from a notice to the step at which {world} ranks stop", "ms", median(waits),
                   "the watcher's look at its board", POLL * 1000, low=min(waits), high=max(waits))
        )  # fmt: skip
    return figures


def _steps(folder: Path, steps: int) -> float:
    guard = CheckpointGuard(folder, save=_nothing, load=_nothing, ranks=Ranks())
    try:
        began = time.process_time()
        for step in range(steps):
            guard.step(step)
        return (time.process_time() - began) / steps * 1e9
    finally:
        guard.close()


class _Idle:
    def step(self, done: int) -> None:
        """Do nothing."""


def _calls(steps: int) -> float:
    idle = _Idle()
    began = time.process_time()
    for step in range(steps):
        idle.step(step)
    return (time.process_time() - began) / steps * 1e9


def _nothing(folder: Path) -> None:
    """No checkpoint is written here."""


class _Rank:
    """A loop that steps until the barrier, in a thread."""

    def __init__(self, ranks: Ranks, pause: float) -> None:
        self.at = (0, 0)
        self.pause = pause
        self.watcher = Watcher(ranks, Reporter(None), [], lambda: self.at)
        self.thread = threading.Thread(target=self.loop)

    def loop(self) -> None:
        """As `guard.step` does."""
        while not (self.watcher.pending and self.at > self.watcher.barrier(PATIENCE)):
            time.sleep(self.pause)
            self.at = (self.at[0] + 1, 0)


def _agree(world: int, seed: int) -> float:
    """Seconds until the last rank stands at the barrier; all at the same step."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            _Rank(Ranks(rank, world, FolderBoard(Path(folder))), draw.uniform(0.0005, 0.0015)) for rank in range(world)
        ]
        for rank in ranks:
            rank.watcher.start()
            rank.thread.start()
        time.sleep(draw.uniform(0.1, 0.3))
        began = time.monotonic()
        ranks[draw.randrange(world)].watcher.ask(Notice("bench"))
        for rank in ranks:
            rank.thread.join(PATIENCE)
        took = time.monotonic() - began
        for rank in ranks:
            rank.watcher.close()
    assert len({rank.at for rank in ranks}) == 1, "the ranks stopped at different steps"
    return took
