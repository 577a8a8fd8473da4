"""A data-parallel run in miniature that goes on with any number of ranks: all hold the same state, which depends on the
steps alone.

python elastic_trainer.py FOLDER TOTAL PAUSE

Rank 0 writes `made.txt`, a line a step: step, number of ranks, state. (Appended, as a user's log is.)
"""

from __future__ import annotations

import hashlib
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from preemption.trainer import CheckpointGuard, Ranks


def after(state: str, step: int) -> str:
    """The state that a step makes of another: a lost or repeated step shows in it."""
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def main(folder: Path, total: int, pause: float) -> None:
    ranks = Ranks.from_environment()
    states = ["start"]

    def save(into: Path) -> None:
        if ranks.leads:
            (into / "state.txt").write_text(states[-1])

    def load(kept: Path) -> None:
        states.append((kept / "state.txt").read_text())

    guard = CheckpointGuard(folder / "checkpoints", save=save, load=load, ranks=ranks)
    with (folder / "made.txt").open("a", buffering=1) if ranks.leads else nullcontext() as made:
        for step in guard.steps(total):
            states[:] = [after(states[-1], step)]
            if made is not None:
                made.write(f"{step} {ranks.world} {states[-1]}\n")
            time.sleep(pause)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
