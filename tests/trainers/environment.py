"""The environment of the adapters' tests: made once, outside the tree, found again by what it is made of.

python environment.py   → prints its interpreter

Below XDG_CACHE_HOME (~/.cache): relume/trainers-HASH, of the locked requirements, this file, cudaless.py and Python's
version. It holds 2.3 GB. One that was not finished has no mark, and is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCKED = HERE.parents[1] / "requirements" / "trainers.txt"
CUDALESS = HERE / "cudaless.py"
MARK = "ready"


def main() -> None:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume"
    caches.mkdir(parents=True, exist_ok=True)
    parts = [path.read_bytes() for path in (LOCKED, CUDALESS, Path(__file__))]
    name = hashlib.sha256(b"\0".join([*parts, sys.version.encode(), sys.platform.encode()])).hexdigest()[:16]
    folder = caches / f"trainers-{name}"
    with (caches / "trainers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARK).exists():
            make(folder)
    sys.stdout.write(f"{folder / 'bin' / 'python'}\n")


def make(folder: Path) -> None:
    """From nothing. What pip says goes to standard error."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    # Without dependencies: all of them are in the file, but for those of CUDA.
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(LOCKED)], check=True, stdout=sys.stderr)
    if sys.platform == "linux":
        subprocess.run([python, str(CUDALESS), python], check=True, stdout=sys.stderr)
    subprocess.run([python, "-c", "import torch"], check=True, stdout=sys.stderr)
    (folder / MARK).touch()


if __name__ == "__main__":
    main()
