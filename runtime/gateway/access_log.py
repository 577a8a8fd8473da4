"""The access log: a JSON line a request, written by a thread of its own, so that no disk ever delays an answer."""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from events.units import format_instant

_MAX_WAITING: Final = 65_536
"""Lines that may wait for the disk; more are dropped and counted."""
_BATCH_SECONDS: Final = 0.1
"""How long lines gather before they are written together."""
STANDARD_ERROR: Final = Path("/dev/stderr")


class AccessLine(NamedTuple):
    """One finished request. `held_ms` and `replica` are None when it had no slot; `status` 0: the client left first."""

    time: float
    request: str
    trace: bytes
    method: bytes
    path: bytes
    model: str | None
    caller: str | None
    status: int
    ending: str
    ms: float
    held_ms: float | None
    replica: str | None
    bytes_in: int
    bytes_out: int


class AccessLog:
    """Appends lines to a file. `add` never blocks."""

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self.failed_writes = 0
        self._waiting: deque[AccessLine] = deque()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        # Opened here, so that a path that cannot be written stops the start with an OSError instead of losing lines.
        self._file = _open(path)
        self._thread = threading.Thread(target=self._run, name="relume-access-log", daemon=True)
        self._thread.start()

    def add(self, line: AccessLine) -> None:
        """Have a line written soon."""
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(line)
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self) -> None:
        """Write what waits, and stop. Blocks for as long as that takes."""
        self._closed.set()
        self._wanted.set()
        self._thread.join()
        self._file.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._closed.wait(_BATCH_SECONDS)
            self._wanted.clear()  # before the lines are taken: one added in between sets it again
            self._write()
        self._write()

    def _write(self) -> None:
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not lines:
            return
        try:
            self._file.write(b"".join(map(_encode, lines)))
        except OSError:  # a full disk loses lines, which is counted; it must not lose requests
            self.failed_writes += len(lines)


def _open(path: Path) -> io.FileIO:
    """Standard error is shared, not opened anew: in a file, a second opening would write over what the first wrote."""
    if path == STANDARD_ERROR:
        return io.FileIO(os.dup(2), "w")
    return io.FileIO(path, "a")


def _encode(line: AccessLine) -> bytes:
    fields = line._asdict()
    fields["time"] = format_instant(line.time)
    fields["trace"] = line.trace.decode("latin-1")
    fields["method"] = line.method.decode("latin-1")
    fields["path"] = line.path.decode("latin-1")
    fields["ms"] = round(line.ms, 3)
    fields["held_ms"] = None if line.held_ms is None else round(line.held_ms, 3)
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
