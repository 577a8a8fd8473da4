"""A real S3-compatible store for tests: versitygw over a folder, built from Go's module proxy, without containers.

The program is kept outside the tree, under its version: RELUME_VERSITYGW_CACHE, else ~/.cache/relume/versitygw.
A bucket is a folder of the store's root, an object a file of it.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coldstart.core.cache.wanted import Access
from tests.support.go_program import GoProgram

ACCESS_KEY, SECRET_KEY = "relume-test", "hush-hush-hush"  # the store's own, of this machine
READY_WITHIN: Final = 60.0  # seconds; it takes a tenth of one, longer on a busy machine


PROGRAM: Final = GoProgram(
    "versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0", "versitygw", "RELUME_VERSITYGW_CACHE", 1800.0
)
"""Two minutes, and 300 MB of modules."""


def there() -> bool:
    """Whether a store can be started: the program, or Go."""
    return PROGRAM.there()


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
    program = PROGRAM.prepare()
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
