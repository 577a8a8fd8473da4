"""The environment of the adapters' tests: made once, outside the tree, found again by what it is made of.

python environment.py              → prints the interpreter of the one with PyTorch, JAX and the others
python environment.py tensorflow   → of the one with TensorFlow

Below XDG_CACHE_HOME (~/.cache): relume/trainers-HASH, of the locked requirements, this file, cudaless.py and Python's
version. They hold 2.3 and 1.6 GB. One that was not finished has no mark, and is made anew.
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
REQUIREMENTS = HERE.parents[1] / "requirements"
LOCKED = {"torch": REQUIREMENTS / "trainers.txt", "tensorflow": REQUIREMENTS / "tensorflow.txt"}
"""By the framework that an environment is there for."""
CUDALESS = HERE / "cudaless.py"
MARK = "ready"


def main() -> None:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume"
    caches.mkdir(parents=True, exist_ok=True)
    framework = sys.argv[1] if len(sys.argv) > 1 else "torch"
    parts = [path.read_bytes() for path in (LOCKED[framework], CUDALESS, Path(__file__))]
    name = hashlib.sha256(b"\0".join([*parts, sys.version.encode(), sys.platform.encode()])).hexdigest()[:16]
    folder = caches / f"trainers-{name}"
    with (caches / "trainers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARK).exists():
            make(folder, framework)
    sys.stdout.write(f"{folder / 'bin' / 'python'}\n")


def make(folder: Path, framework: str) -> None:
    """From nothing. What pip says goes to standard error."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    # Without dependencies: all of them are in the file, but for those of CUDA.
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(LOCKED[framework])], check=True, stdout=sys.stderr)
    if sys.platform == "linux" and framework == "torch":
        subprocess.run([python, str(CUDALESS), python], check=True, stdout=sys.stderr)
    subprocess.run([python, "-c", f"import {framework}"], check=True, stdout=sys.stderr)
    (folder / MARK).touch()


if __name__ == "__main__":
    main()
