"""A real OCI registry for tests: the one of go-containerregistry, in memory, built from Go's module proxy.

The program is kept outside the tree, under its version: RELUME_REGISTRY_CACHE, else ~/.cache/relume/oci-registry.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.fake_registry import MANIFEST, layer
from tests.support.go_program import GoProgram

PROGRAM: Final = GoProgram(
    "registry", "github.com/google/go-containerregistry/cmd/registry", "v0.22.1", "oci-registry",
    "RELUME_REGISTRY_CACHE", 900.0,
)  # fmt: skip
"""It takes seconds to build, with nothing but the standard library below it."""
READY_WITHIN: Final = 60.0


def there() -> bool:
    """Whether one can be started: the program, or Go."""
    return PROGRAM.there()


@contextlib.contextmanager
def registry_in(folder: Path) -> Iterator[str]:
    """Its address; it ends afterwards, with all that it had."""
    program = PROGRAM.prepare()
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
