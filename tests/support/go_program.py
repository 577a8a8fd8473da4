"""Programs in Go that tests run: built once from Go's module proxy, and kept outside the tree under their version."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


class CannotBuild(Exception):
    """There is no program, and Go cannot build it."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """`variable`: names the folder to keep it in; else it is `folder` below ~/.cache/relume. `within`: seconds."""

    name: str
    module: str
    version: str
    folder: str
    variable: str
    within: float

    @property
    def home(self) -> Path:
        """Where the program of this version is kept."""
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / self.folder
        return Path(os.environ.get(self.variable) or usual) / self.version

    def there(self) -> bool:
        """Whether it can be run: it is built, or Go is there."""
        return (self.home / self.name).exists() or shutil.which("go") is not None

    def prepare(self) -> Path:
        """The program; built once, also when several processes ask. Raises CannotBuild."""
        home = self.home
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / self.name).exists():
                self._build(home)
        return home / self.name

    def _build(self, home: Path) -> None:
        made, what = home / "building", f"{self.module}@{self.version}"
        flags = {"GOBIN": str(made), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath -modcacherw"}
        done = subprocess.run(
            ["go", "install", what], env={**os.environ, **flags}, cwd=home,
            capture_output=True, text=True, timeout=self.within, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CannotBuild(f"go install {what} failed: {done.stderr[-2000:]}")
        (made / self.name).replace(home / self.name)
        made.rmdir()
