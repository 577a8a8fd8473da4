"""The demo's training run: interrupted or not, the same losses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

STEPS = 300


def command(folder: Path, name: str, pace: float = 0.0) -> list[str]:
    """The run, as the demo starts it."""
    return [
        sys.executable, "-m", "deploy.demo.trainer", "--checkpoints", str(folder / name),
        "--losses", str(folder / f"{name}.json"), "--steps", str(STEPS), "--pace", str(pace),
    ]  # fmt: skip


def test_an_interrupted_run_has_the_losses_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """Told twice by a signal to save and go, it ends with code 75 each time; its curve is the other's, bit for bit."""
    subprocess.run(command(tmp_path, "whole"), check=True, capture_output=True, timeout=60)
    codes = []
    for _ in range(2):
        process = subprocess.Popen(command(tmp_path, "cut", 0.01), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()  # it trains
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=60)
        codes.append(process.returncode)
    subprocess.run(command(tmp_path, "cut"), check=True, capture_output=True, timeout=60)
    whole, cut = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "cut"))
    assert codes == [75, 75]
    assert len(whole) == STEPS
    assert cut == whole
    assert sum(whole[-50:]) < sum(whole[:50]) / 10, "it has learned something"
