"""The kubelet's podresources socket for tests: the service of `k8s.io/kubelet`, in Go, that says what a test wants.

`podresources/` beside this names the module's version and hashes. It is built once, in half a minute, into a cache
outside the tree: RELUME_KUBE_CACHE, else ~/.cache/relume.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PLACE: Final = Path(__file__).parent / "podresources"
BUILT_WITHIN: Final = 900.0
"""Seconds: half a minute on two free cores."""
GPU: Final = "nvidia.com/gpu"


def binary() -> Path:
    """Where the program of these sources is kept."""
    made_of = b"\0".join((PLACE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume"
    root = Path(os.environ.get("RELUME_KUBE_CACHE") or home)
    return root / f"podresources-{hashlib.sha256(made_of).hexdigest()[:16]}" / "podresources"


def there() -> bool:
    """Whether it can be run: it is built, or Go is there."""
    return binary().exists() or shutil.which("go") is not None


def build() -> Path:
    """The program; built once, also when several processes ask."""
    made = binary()
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            partial = made.with_name("partial")
            settings = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly", "GOGC": "400"}
            subprocess.run(
                ["go", "build", "-p", "2", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), "."], cwd=PLACE,
                env={**os.environ, **settings}, check=True, timeout=BUILT_WITHIN,
            )  # fmt: skip
            partial.replace(made)
    return made


@dataclass
class KubeletSocket:
    """The socket's folder, and what is said there. Change it, then `say`."""

    folder: Path
    given: dict[str, Sequence[str]] = field(default_factory=dict)
    """By ``NAMESPACE/POD``: its GPUs."""
    claimed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By ``NAMESPACE/POD``: the pool and the name of a device that it claims."""
    offered: Sequence[str] = ()
    """The GPUs that their plugin offers."""
    resource: str = GPU
    refuses: str = ""

    @property
    def said(self) -> Path:
        """The file that the program reads."""
        return self.folder / "said.json"

    def say(self) -> None:
        """From now on this."""
        pods = [self._pod(name) for name in {**self.given, **self.claimed}]
        offered = [{"resourceName": self.resource, "deviceIds": [one]} for one in self.offered]
        told: Mapping[str, Any] = {
            "list": {"podResources": pods}, "allocatable": {"devices": offered}, "refuse": self.refuses,
        }  # fmt: skip
        partial = self.folder / "said.partial"
        partial.write_text(json.dumps(told), encoding="utf-8")
        partial.replace(self.said)

    def _pod(self, name: str) -> Mapping[str, Any]:
        space, _, pod = name.partition("/")
        topology = {"nodes": [{"ID": "1"}]}
        devices = [{"resourceName": self.resource, "deviceIds": list(self.given.get(name, ())), "topology": topology}]
        container: dict[str, Any] = {"name": "engine", "cpuIds": ["1", "200"], "devices": devices}
        if name in self.claimed:
            pool, device = self.claimed[name]
            resource = {"driverName": "gpu.nvidia.com", "poolName": pool, "deviceName": device,
                        "cdiDevices": [{"name": f"k8s.gpu.nvidia.com/claim={device}"}]}  # fmt: skip
            container["dynamicResources"] = [
                {"claimName": pod, "claimNamespace": space, "claimResources": [resource]}
            ]  # fmt: skip
        return {"name": pod, "namespace": space, "containers": [{"name": "beside"}, container], "cpuIds": ["7"]}


@asynccontextmanager
async def kubelet_socket(folder: Path) -> AsyncIterator[KubeletSocket]:
    """The socket until the end. The path must be short: a socket's has 107 characters at most."""
    program = await asyncio.to_thread(build)
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - at once
    socket = KubeletSocket(folder)
    socket.say()
    path = folder / "kubelet.sock"
    path.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(str(program), str(path), str(socket.said))
    try:
        async with asyncio.timeout(10):
            while not path.is_socket():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        yield socket
    finally:
        process.kill()
        await process.wait()
