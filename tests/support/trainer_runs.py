"""Runs of the small trainer as processes: started, told, killed, started again, and what became of their steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.small_trainer import Training

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ROOT / "tests" / "support" / "small_trainer.py"
BOUND = 60.0


def wait_until(holds: Callable[[], bool], within: float = BOUND) -> None:
    """Look until it is so; fail when it is not within so many seconds."""
    tries = int(within / 0.005)
    for _ in range(tries):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError(f"not within {within} s")


@dataclass
class Run:
    """One training of `total` steps by `world` ranks, over as many starts as it takes."""

    folder: Path
    total: int
    world: int = 1
    pause: float = 0.002
    save_seconds: float = 0.0
    every: int | None = None
    patience: float = 30.0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    starts: int = 0

    def start(self) -> None:
        """Start all ranks, with a board of their own."""
        self.starts += 1
        self.notice.unlink(missing_ok=True)
        self.reports.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "RELUME_NOTICE_FILE": str(self.notice),
            "RELUME_REPORT_FILE": str(self.reports),
            "PYTHONPATH": str(ROOT),
        }
        self.processes = [
            subprocess.Popen(self._command(rank), env=environment, cwd=self.folder) for rank in range(self.world)
        ]

    def _command(self, rank: int) -> list[str]:
        command = [sys.executable, str(TRAINER), str(self.folder), str(self.total), "--verify"]
        command += ["--pause", str(self.pause), "--save-seconds", str(self.save_seconds)]
        command += ["--patience", str(self.patience)]
        if self.every is not None:
            command += ["--every", str(self.every)]
        if self.world > 1:
            board = self.folder / f"board-{self.starts}"
            command += ["--rank", str(rank), "--world", str(self.world), "--board", str(board)]
        return command

    @property
    def notice(self) -> Path:
        return self.folder / "notice.json"

    @property
    def reports(self) -> Path:
        return self.folder / "reports.jsonl"

    def tell(self, **notice: object) -> None:
        """Put a notice where the trainer looks, whole."""
        partial = self.notice.with_suffix(".partial")
        partial.write_text(json.dumps(notice))
        partial.replace(self.notice)

    def heard(self, kind: str) -> list[dict[str, object]]:
        """The reports of that kind in this start."""
        if not self.reports.exists():
            return []
        lines = [json.loads(line) for line in self.reports.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]

    def wait_step(self, step: int, rank: int = 0) -> None:
        """Wait until that rank has trained that step (or has ended)."""
        wait_until(lambda: self.trained(rank) >= step or self.processes[rank].poll() is not None, BOUND)

    def wait_save(self) -> None:
        """Wait until a save is being written (or it has ended)."""
        saving = self.folder / "checkpoints"
        wait_until(lambda: any(saving.glob("*.partial")) or self.processes[0].poll() is not None, BOUND)

    def trained(self, rank: int = 0) -> int:
        """The last step in the losses of a rank; -1 before the first."""
        path = self.folder / f"losses-{rank}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return int(lines[-1].split()[0]) if lines and len(lines[-1].split()) == 2 else -1

    def wait(self) -> list[int]:
        """The exit codes of all ranks, once they have ended."""
        return [process.wait(BOUND) for process in self.processes]

    def kill(self) -> None:
        """SIGKILL to all ranks."""
        for process in self.processes:
            process.kill()
        self.wait()

    def losses(self, rank: int = 0) -> dict[int, set[str]]:
        """Of each step all that was ever written of it: more than one value would be another curve."""
        found: dict[int, set[str]] = {}
        for line in (self.folder / f"losses-{rank}.txt").read_text().splitlines():
            step, loss = line.split()
            found.setdefault(int(step), set()).add(loss)
        return found

    def times_trained(self, rank: int = 0) -> int:
        """Steps trained over all starts, those done again included."""
        return len((self.folder / f"losses-{rank}.txt").read_text().splitlines())


def uninterrupted(total: int) -> dict[int, set[str]]:
    """The curve of a run that nobody disturbs."""
    training = Training(0)
    curve = {}
    for step in range(total):
        training.train(step)
        curve[step] = {training.weights}
    return curve
