"""A disk that is full, for real: no file may grow beyond a limit while the trainer saves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from preemption.trainer.manifest import describe
from preemption.trainer.store import NoRoom, Store

ROOT = Path(__file__).resolve().parents[3]
EX_TEMPFAIL = 75

PROGRAM = """
import os, resource, signal, sys, time
from pathlib import Path
from preemption.trainer import CheckpointGuard, GuardSettings

def limit(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

def save(folder):
    (folder / "small").write_bytes(b"x" * 10)
    (folder / "big").write_bytes(b"x" * 100_000)

guard = CheckpointGuard(Path(sys.argv[1]), save, lambda folder: None, settings=GuardSettings(every_steps=10))
for step in range(20_000):
    if step == 15:  # one checkpoint is there
        limit(50_000)
    if step == 25:  # a planned one has failed
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == 600:
        limit(resource.RLIM_INFINITY)
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.001)
    guard.step(step + 1)
"""


def test_a_full_disk_ends_no_training_and_damages_nothing(tmp_path: Path) -> None:
    """Planned saves fail, and so does one that is told; the first checkpoint stands; with room it leaves as told."""
    reports, checkpoints = tmp_path / "reports.jsonl", tmp_path / "checkpoints"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "RELUME_REPORT_FILE": str(reports)}
    command = [sys.executable, "-c", PROGRAM, str(checkpoints)]
    done = subprocess.run(command, env=environment, timeout=120, check=False, capture_output=True, text=True)
    assert done.returncode == EX_TEMPFAIL, done.stderr
    told = [json.loads(line) for line in reports.read_text().splitlines()]
    failed = [report for report in told if report["kind"] == "save_failed"]
    assert [report.get("id") is not None for report in failed].count(True) == 1
    assert all("File too large" in report["message"] for report in failed)
    left = [report["step"] for report in told if report["kind"] == "leaving"]
    saved = [report["step"] for report in told if report["kind"] == "saved"]
    assert (saved[0], saved[-1:]) == (10, left)
    assert all(step > 600 for step in saved[1:]), "a planned one may come before what it was told"
    assert not list(checkpoints.glob("*.partial"))


def test_too_little_room_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that would not fit is refused at once, so the deadline is not spent on it."""
    store = Store(tmp_path, keep=2)
    folder = store.begin(1)
    (folder / "state").write_bytes(b"x" * 1000)
    store.commit(1, 1, (describe(folder, folder / "state"),))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1199))
    with pytest.raises(NoRoom, match="1199 bytes free, but a checkpoint takes about 1200"):
        store.begin(2)
    assert not list(tmp_path.glob("*.partial"))
