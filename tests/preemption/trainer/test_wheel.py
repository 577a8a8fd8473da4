"""The trainer's wheel: it holds the SDK and nothing else, and runs where nothing of relume is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EX_TEMPFAIL = 75

PROGRAM = """
import os, signal, sys
from pathlib import Path
from preemption.trainer import CheckpointGuard
folder = Path(sys.argv[1])
steps = []
guard = CheckpointGuard(
    folder,
    save=lambda where: (where / "steps.txt").write_text(" ".join(map(str, steps))),
    load=lambda where: steps.extend(map(int, (where / "steps.txt").read_text().split())),
)
for step in guard.steps(100_000 if not (folder.exists() and any(folder.iterdir())) else 0):
    steps.append(step)
    if step == 10:
        os.kill(os.getpid(), signal.SIGUSR1)
assert steps == list(range(len(steps))) and len(steps) > 10, steps
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("trainer")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(folder), str(ROOT / "packaging" / "trainer")], check=True, timeout=120)
    (wheel,) = folder.glob("relume_trainer-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def interpreters() -> list[str]:
    """Ours, and the oldest that the wheel promises, where there is one that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which("python3.9"), *map(str, pyenv.glob("versions/3.9.*/bin/python3.9"))]
    oldest = next((one for one in found if one is not None and runs(one)), None)
    return [sys.executable, *([oldest] if oldest is not None else [])]


def runs(python: str) -> bool:
    """Whether it is more than a name: pyenv has one for versions that are not chosen."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def test_it_holds_the_sdk_and_nothing_else(unpacked: Path) -> None:
    """Everything of `preemption.trainer`, nothing else of `preemption`, and no dependency but the adapters' extras."""
    source = {path.relative_to(ROOT) for path in (ROOT / "preemption" / "trainer").rglob("*.py")}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*.py")} == source
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    told = metadata.read_text(encoding="utf-8")
    assert all("extra ==" in line for line in told.splitlines() if line.startswith("Requires-Dist:"))
    extras = {line.split()[1] for line in told.splitlines() if line.startswith("Provides-Extra:")}
    assert extras == {"torch", "jax", "transformers", "keras", "lightning"}
    assert "Requires-Python: >=3.9" in told


@pytest.mark.parametrize("python", interpreters())
def test_it_runs_alone(unpacked: Path, tmp_path: Path, python: str) -> None:
    """Without any installed package: told by a signal it saves and leaves, and is found again by the next start."""
    command = [python, "-S", "-c", PROGRAM, str(tmp_path / "checkpoints")]
    alone = {"PYTHONPATH": str(unpacked), "PATH": "/usr/bin:/bin"}
    first = subprocess.run(command, env=alone, timeout=60, check=False)
    second = subprocess.run(command, env=alone, timeout=60, check=False)
    assert (first.returncode, second.returncode) == (EX_TEMPFAIL, 0)
