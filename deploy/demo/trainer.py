"""A real, small training run for the demo: a network of 64 hidden units learns a curve, one batch a step.

It lends its card: `CheckpointGuard` saves when relume asks, and started again it goes on at exactly that step. All that
the next step depends on is in a checkpoint (weights, speeds, the generator's state), and so are the losses so far: the
curve of an interrupted run is that of an uninterrupted one, bit for bit.

    python -m deploy.demo.trainer --checkpoints FOLDER --losses FILE --steps 600 --pace 0.05
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from preemption.trainer import CheckpointGuard

Array = npt.NDArray[np.float64]

HIDDEN, BATCH, RATE, MOMENTUM, SEED = 64, 64, 0.05, 0.9, 20_261_130
STATE = "state.json"


@dataclass
class Run:
    """The state of the run: everything that the next step depends on, and the losses of all steps so far."""

    generator: np.random.Generator
    weights: dict[str, Array]
    speeds: dict[str, Array]
    losses: list[float] = field(default_factory=list)

    def step(self) -> None:
        """One batch: forward, backward, update. Times are in steps, not seconds: nothing here reads a clock."""
        x = self.generator.uniform(-1.0, 1.0, (BATCH, 1))
        wanted = np.sin(4.0 * x) + 0.05 * self.generator.standard_normal((BATCH, 1))
        w = self.weights
        hidden = np.tanh(x @ w["in"] + w["in_bias"])
        error = hidden @ w["out"] + w["out_bias"] - wanted
        self.losses.append(float(np.mean(error**2)))
        slope = 2.0 * error / BATCH
        back = (slope @ w["out"].T) * (1.0 - hidden**2)
        slopes = {
            "in": x.T @ back, "in_bias": back.sum(axis=0), "out": hidden.T @ slope, "out_bias": slope.sum(axis=0),
        }  # fmt: skip
        for name, change in slopes.items():
            self.speeds[name] = MOMENTUM * self.speeds[name] - RATE * change
            w[name] = w[name] + self.speeds[name]

    def save(self, folder: Path) -> None:
        """Write all of it into an empty folder."""
        for name, value in self.weights.items():
            np.save(folder / f"{name}.npy", value)
            np.save(folder / f"{name}-speed.npy", self.speeds[name])
        state = {"generator": self.generator.bit_generator.state, "losses": self.losses}
        (folder / STATE).write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Become what was saved there."""
        for name in self.weights:
            self.weights[name] = np.load(folder / f"{name}.npy")
            self.speeds[name] = np.load(folder / f"{name}-speed.npy")
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        self.generator.bit_generator.state = state["generator"]
        self.losses = state["losses"]


def new_run() -> Run:
    """A run at its beginning."""
    generator = np.random.default_rng(SEED)
    shapes = {"in": (1, HIDDEN), "in_bias": (HIDDEN,), "out": (HIDDEN, 1), "out_bias": (1,)}
    weights = {name: generator.standard_normal(shape) * 0.5 for name, shape in shapes.items()}
    return Run(generator, weights, {name: np.zeros(shape) for name, shape in shapes.items()})


def train(checkpoints: Path, losses: Path, steps: int, pace: float) -> None:
    """Train, or go on; `pace` is how long a step takes at least, in seconds, so that people can watch."""
    run = new_run()
    guard = CheckpointGuard(checkpoints, run.save, run.load)
    for step in guard.steps(steps):
        run.step()
        if step % 50 == 0:
            sys.stdout.write(f"step {step}: loss {run.losses[-1]:.5f}\n")
            sys.stdout.flush()
        time.sleep(pace)
    losses.write_text(json.dumps(run.losses), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--losses", type=Path, required=True, help="file for the losses of all steps, once it is done")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pace", type=float, default=0.05, help="least seconds a step")
    given = parser.parse_args()
    train(given.checkpoints, given.losses, given.steps, given.pace)


if __name__ == "__main__":
    main()
