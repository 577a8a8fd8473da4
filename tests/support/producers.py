"""The producers of docs/examples/producers, as commands. The one in Go is built once and kept outside the tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.needs import ROOT

PRODUCERS: Final = ROOT / "docs" / "examples" / "producers"

BUILT_WITHIN: Final = 580.0
"""Seconds. A first build compiles the client and its codecs; on two busy cores it took two and a half minutes."""


def python(script: str, *arguments: str) -> tuple[str, ...]:
    """A producer in Python."""
    return (sys.executable, str(PRODUCERS / "python" / script), *arguments)


def go(*arguments: str) -> tuple[str, ...]:
    """The producer in Go, built."""
    source = PRODUCERS / "go"
    recipe = hashlib.sha256(b"\0".join((source / name).read_bytes() for name in ("go.sum", "main.go"))).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / "producers"
    home.mkdir(parents=True, exist_ok=True)
    program = home / recipe
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = ["go", "build", "-o", str(program), "."]
            done = subprocess.run(
                command, cwd=source, capture_output=True, timeout=BUILT_WITHIN, check=False, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
    return (str(program), *arguments)
