"""A training run in miniature: its weights are a hash of all it has seen, so a lost or repeated step shows.

python small_trainer.py FOLDER TOTAL [--rank R --world W --board FOLDER] [--every N] [--pause S] [--save-seconds S]

It writes `losses-R.txt`, one line a step (appended, as a user's log is). No save ends while FOLDER holds `hold-save`.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from pathlib import Path

from preemption.trainer import CheckpointGuard, FolderBoard, GuardSettings, Ranks

HOLDS_SAVE = "hold-save"


class Training:
    """State: a digest and the generator's state, both saved."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.weights = hashlib.sha256(b"start").hexdigest()
        self.random = random.Random(7)

    def train(self, step: int) -> None:
        """One step: depends on all steps before, on the step's data and on the generator."""
        seen = f"{self.weights} {step} {self.random.random()}"
        self.weights = hashlib.sha256(seen.encode()).hexdigest()


def save(training: Training, seconds: float, folder: Path) -> None:
    """In four files, slowly, as a big model would be."""
    version, state, gauss = training.random.getstate()
    text = f"{training.weights}\n{version} {gauss} {' '.join(map(str, state))}\n"
    for part in range(4):
        (folder / f"rank-{training.rank}-part-{part}.txt").write_text(text[part::4])
        time.sleep(seconds / 4)
    while (folder.parent.parent / HOLDS_SAVE).exists():
        time.sleep(0.02)


def load(training: Training, folder: Path) -> None:
    """The other way round."""
    parts = [(folder / f"rank-{training.rank}-part-{part}.txt").read_text() for part in range(4)]
    letters = [""] * sum(map(len, parts))
    for part, text in enumerate(parts):
        letters[part::4] = text
    weights, generator = "".join(letters).strip().split("\n")
    training.weights = weights
    version, gauss, *state = generator.split()
    training.random.setstate((int(version), tuple(map(int, state)), None if gauss == "None" else float(gauss)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("total", type=int)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--board", type=Path)
    parser.add_argument("--every", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--save-seconds", type=float, default=0.0)
    parser.add_argument("--patience", type=float, default=30.0)
    parser.add_argument("--verify", action="store_true")
    args = parser.parse_args()
    training = Training(args.rank)
    ranks = Ranks(args.rank, args.world, None if args.board is None else FolderBoard(args.board))
    guard = CheckpointGuard(
        args.folder / "checkpoints",
        save=lambda folder: save(training, args.save_seconds, folder),
        load=lambda folder: load(training, folder),
        settings=GuardSettings(every_steps=args.every, patience=args.patience, verify_content=args.verify),
        ranks=ranks,
    )
    with (args.folder / f"losses-{args.rank}.txt").open("a", buffering=1) as losses:
        for step in guard.steps(args.total):
            training.train(step)
            losses.write(f"{step} {training.weights}\n")
            time.sleep(args.pause)


if __name__ == "__main__":
    main()
