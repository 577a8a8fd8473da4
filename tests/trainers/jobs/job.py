"""What a job is told, and how it tells what its parameters are after each step."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preemption.trainer import GuardSettings

SAMPLES, FEATURES = 96, 8


@dataclass(frozen=True)
class Job:
    """One start of a training. Times in seconds; `every`: save after so many steps."""

    folder: str
    total: int
    rank: int = 0
    world: int = 1
    port: int = 0
    every: int | None = None
    pause: float = 0.0
    save_pause: float = 0.0
    most_bytes: int = 0
    """While it saves, no file may grow beyond this: a full disk. 0: as the machine says."""
    variant: str = ""

    @property
    def checkpoints(self) -> Path:
        return Path(self.folder) / "checkpoints"

    @property
    def settings(self) -> GuardSettings:
        return GuardSettings(every_steps=self.every, patience=60.0, verify_content=True)

    def trained(self, step: int, parameters: Iterable[Any]) -> None:
        """Write down what a step came to; `parameters` are arrays."""
        digest = hashlib.sha256()
        for one in parameters:
            digest.update(np.ascontiguousarray(one).tobytes())
        with Path(self.folder, f"losses-{self.rank}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{step} {digest.hexdigest()}\n")
        time.sleep(self.pause)

    def slowly(self, save: Callable[[Path], Any]) -> Callable[[Path], Any]:
        """Saving on a slow storage: the files come a while after one another."""

        def slow(folder: Path) -> Any:
            time.sleep(self.save_pause / 2)
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            if self.most_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, limits[1]))
            try:
                return save(folder)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                time.sleep(self.save_pause / 2)

        return slow


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets: the same for everybody."""
    draw = np.random.default_rng(11)
    inputs = draw.normal(size=(SAMPLES, FEATURES)).astype("float32")
    return inputs, (inputs[:, :1] * 2 + inputs[:, 1:2] ** 2).astype("float32")
