"""A real OCI registry for tests: the one of go-containerregistry, in memory, built from Go's module proxy.

The program is kept outside the tree, under its version: RELUME_REGISTRY_CACHE, else ~/.cache/relume/oci-registry.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.fake_registry import MANIFEST, layer

VERSION: Final = "v0.22.1"
MODULE: Final = "github.com/google/go-containerregistry/cmd/registry"
BUILT_WITHIN: Final = 900.0  # seconds; it takes some, with nothing but the standard library below it
READY_WITHIN: Final = 60.0


def cache() -> Path:
    """Where the program of this version is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / "oci-registry"
    return Path(os.environ.get("RELUME_REGISTRY_CACHE") or home) / VERSION


def there() -> bool:
    """Whether one can be started: the program, or Go."""
    return (cache() / "registry").exists() or shutil.which("go") is not None


def prepare() -> Path:
    """The program; built once, also when several processes ask."""
    home = cache()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "registry").exists():
            flags = {"GOBIN": str(home / "building"), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath"}
            command = ["go", "install", f"{MODULE}@{VERSION}"]
            subprocess.run(command, env={**os.environ, **flags}, cwd=home, timeout=BUILT_WITHIN, check=True)
            (home / "building" / "registry").replace(home / "registry")
    return home / "registry"


@contextlib.contextmanager
def registry_in(folder: Path) -> Iterator[str]:
    """Its address; it ends afterwards, with all that it had."""
    program = prepare()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([str(program), "-port", str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    atexit.register(process.kill)
    try:
        _wait(process, port, folder / "registry.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(20)
        atexit.unregister(process.kill)


def push(endpoint: str, name: str, tag: str, files: dict[str, bytes]) -> str:
    """An artifact with these files, one a layer, as `oras push` makes it; its digest."""
    layers = [layer(file, content, "application/octet-stream") for file, content in files.items()]
    empty = layer("", b"{}", "application/vnd.oci.empty.v1+json")
    for content in (*files.values(), b"{}"):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        where = _ask("POST", f"{endpoint}/v2/{name}/blobs/uploads/", b"").headers["Location"]
        whole = where if "://" in where else f"{endpoint}{where}"
        _ask("PUT", f"{whole}{'&' if '?' in whole else '?'}digest={digest}", content)
    config = {key: empty[key] for key in ("mediaType", "digest", "size")}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    answer = _ask("PUT", f"{endpoint}/v2/{name}/manifests/{tag}", json.dumps(manifest).encode(), MANIFEST)
    return str(answer.headers["Docker-Content-Digest"])


def _ask(method: str, url: str, body: bytes, kind: str = "application/octet-stream"):
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
        return answer


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
    while time.monotonic() < deadline and process.poll() is None:  # noqa: TID251 - as above
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the registry did not take connections: {log.read_text(errors='replace')[-2000:]}")
