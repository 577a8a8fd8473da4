"""Real Helm and kustomize for tests of the chart, built once from Go's module proxy into a cache outside the tree.

They are kept under their versions: RELUME_HELM_CACHE, else ~/.cache/relume/helm. The first build takes a few minutes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSIONS: Final = {
    "helm": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "kustomize": ("sigs.k8s.io/kustomize/kustomize/v5", "v5.8.1"),
}
BUILT_WITHIN: Final = 1800.0
"""Seconds: minutes on two free cores, several times that on a busy machine."""
RUN_WITHIN: Final = 120.0


class HelmMissing(Exception):
    """There is no Helm here: no program, and no Go to build it."""


def cache(name: str) -> Path:
    """Where a program of this version is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / "helm"
    return Path(os.environ.get("RELUME_HELM_CACHE") or home) / VERSIONS[name][1]


def there() -> bool:
    """Whether they can be run: the programs, or Go."""
    return all((cache(name) / name).exists() for name in VERSIONS) or shutil.which("go") is not None


def prepare(name: str) -> Path:
    """A program; built once, also when several processes ask."""
    home = cache(name)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / name).exists():
            _build(name, home)
    return home / name


def _build(name: str, home: Path) -> None:
    module, version = VERSIONS[name]
    made = home / "building"
    flags = {"GOBIN": str(made), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath -modcacherw", "GOGC": "400"}
    done = subprocess.run(
        ["go", "install", f"{module}@{version}"], env={**os.environ, **flags}, cwd=home,
        capture_output=True, text=True, timeout=BUILT_WITHIN, check=False,
    )  # fmt: skip
    if done.returncode:
        raise HelmMissing(f"go install {module}@{version} failed: {done.stderr[-2000:]}")
    (made / name).replace(home / name)
    made.rmdir()


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm, with a home of its own; the exit code is the caller's to judge."""
    home = cache("helm") / "home"
    settings = {"HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home)}
    command = [str(prepare("helm")), *arguments]
    return subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=RUN_WITHIN, check=False
    )


def main() -> None:
    """Build what is not there yet."""
    for name in VERSIONS:
        prepare(name)


if __name__ == "__main__":
    main()
