"""The programs of a Kubernetes control plane, built once from Go modules into a cache outside the tree.

`kubecp/` beside this names the versions and hashes. The first build takes five to fifteen minutes of two cores; then it
is a file of 140 MB under a hash of what made it: RELUME_KUBE_CACHE, else ~/.cache/relume. `python -m
tests.support.kube_binary` builds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PLACE: Final = Path(__file__).parent / "kubecp"
SOURCES: Final = ("go.mod", "go.sum", "main.go")
VERSION: Final = "v1.37.2"
"""What the API server says of itself; go.mod names the modules."""
_STAMP: Final = "k8s.io/component-base/version"
LINKED: Final = " ".join((
    "-s", "-w",
    *(f"-X {_STAMP}.{name}={value}" for name, value in {
        "gitVersion": VERSION, "gitMajor": VERSION[1:].split(".")[0], "gitMinor": VERSION.split(".")[1],
        "gitCommit": "unknown", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z",
    }.items()),
))  # fmt: skip
BUILT_WITHIN: Final = 2400.0
"""Seconds for the build: 5 minutes on two free cores, several times that on a busy machine."""


class KubernetesMissing(Exception):
    """There is no control plane here, and it cannot be built: no Go, or its build failed."""


def cache() -> Path:
    """The folder that the binary of these sources is kept in."""
    made_of = b"\0".join((PLACE / name).read_bytes() for name in SOURCES) + LINKED.encode()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume"
    root = Path(os.environ.get("RELUME_KUBE_CACHE") or home)
    return root / f"kubecp-{hashlib.sha256(made_of).hexdigest()[:16]}"


def binary() -> Path:
    """Where the binary is, once it is built."""
    return cache() / "kubecp"


def there() -> bool:
    """Whether it is built. (Tests do not build it by themselves: they would look as if they hung.)"""
    return binary().exists()


def build() -> Path:
    """Build it if it is not there; once, also when several processes ask. Raises KubernetesMissing."""
    home = cache()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary().exists():
            _build(home)
    return binary()


def _build(home: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise KubernetesMissing("there is no Go to build the control plane with; install Go 1.26 or newer")
    partial = home / "kubecp.partial"
    command = [go, "build", "-p", "2", "-trimpath", "-ldflags", LINKED, "-o", str(partial), "."]
    # GOGC: the compiler collects its garbage less often, which is a third of the time for a few GB of memory
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly", "GOGC": "400"}
    done = subprocess.run(
        command, cwd=PLACE, env={**os.environ, **settings}, capture_output=True, text=True, timeout=BUILT_WITHIN,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise KubernetesMissing(f"building the control plane failed: {(done.stdout + done.stderr)[-2000:]}")
    partial.replace(binary())


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except KubernetesMissing as missing:
        sys.exit(str(missing))
