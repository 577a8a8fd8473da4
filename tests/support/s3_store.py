"""A real S3-compatible store for tests: versitygw over a folder, built from Go's module proxy, without containers.

The program is kept outside the tree, under its version: RELUME_VERSITYGW_CACHE, else ~/.cache/relume/versitygw.
A bucket is a folder of the store's root, an object a file of it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coldstart.core.cache.wanted import Access

VERSION: Final = "v1.8.0"
MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
ACCESS_KEY, SECRET_KEY = "relume-test", "hush-hush-hush"  # the store's own, of this machine
READY_WITHIN: Final = 60.0  # seconds; it takes a tenth of one, longer on a busy machine
BUILT_WITHIN: Final = 1800.0


class StoreMissing(Exception):
    """There is no store here: no program, and no Go to build it."""


def cache() -> Path:
    """Where the program of this version is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / "versitygw"
    return Path(os.environ.get("RELUME_VERSITYGW_CACHE") or home) / VERSION


def there() -> bool:
    """Whether a store can be started: the program, or Go."""
    return (cache() / "versitygw").exists() or shutil.which("go") is not None


def prepare() -> Path:
    """The program; built once, also when several processes ask. Two minutes, and 300 MB of modules."""
    home = cache()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "versitygw").exists():
            _build(home)
    return home / "versitygw"


def _build(home: Path) -> None:
    made = home / "building"
    flags = {"GOBIN": str(made), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath -modcacherw"}
    done = subprocess.run(
        ["go", "install", f"{MODULE}@{VERSION}"], env={**os.environ, **flags}, cwd=home,
        capture_output=True, text=True, timeout=BUILT_WITHIN, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StoreMissing(f"go install {MODULE}@{VERSION} failed: {done.stderr[-2000:]}")
    (made / "versitygw").replace(home / "versitygw")
    made.rmdir()


@dataclass(frozen=True)
class Store:
    """A running one. `root / BUCKET / KEY` is an object."""

    root: Path
    port: int

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """An object, written through the store, so that it has an ETag."""
        import obstore  # noqa: PLC0415 - an extra

        (self.root / bucket).mkdir(exist_ok=True)
        obstore.put(self._opened(bucket), key, content)

    def _opened(self, bucket: str):
        from obstore.store import S3Store  # noqa: PLC0415 - as above

        return S3Store(
            bucket, endpoint=self.endpoint, region="us-east-1", access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY,
            virtual_hosted_style_request=False, client_options={"allow_http": True},
        )  # fmt: skip


def access(endpoint: str) -> Access:
    """How tests speak with it: the credentials are in the environment variable RELUME_TEST_S3."""
    return Access(credentials="env:RELUME_TEST_S3", endpoint=endpoint, region="us-east-1")


CREDENTIALS: Final = f"{ACCESS_KEY}:{SECRET_KEY}"


@contextlib.contextmanager
def store_in(folder: Path) -> Iterator[Store]:
    """A store over an empty folder, ended afterwards."""
    program = prepare()
    (folder / "root").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "store.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), "--port", f"127.0.0.1:{port}", "--access", ACCESS_KEY, "--secret", SECRET_KEY,
             "--keep-alive", "--quiet", "--health", "/health", "posix", str(folder / "root")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    atexit.register(process.kill)
    try:
        _wait(process, port, folder / "store.log")
        yield Store(folder / "root", port)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        atexit.unregister(process.kill)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
    while time.monotonic() < deadline and process.poll() is None:  # noqa: TID251 - as above
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the store did not take connections: {log.read_text(errors='replace')[-2000:]}")
