"""What a trainer tells back: heard, progress, saved, could not save, goes on, finished. Losing a report loses no step.

A report is one JSON object a line, appended to the file that `RELUME_REPORT_FILE` names, and kept for whoever asks over
HTTP. The last word before leaving, and the newest save before it, also go to Kubernetes' termination log, so that the
proof survives when nothing else does.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Union

from preemption.trainer import clock

Value = Union[str, int, float, None]

TERMINATION_LOG = Path("/dev/termination-log")
"""Where a container's last words go (Kubernetes: `terminationMessagePath`, 4 KiB a container)."""


KEPT = 512
"""Reports kept for who asks over HTTP: relume asks each second, and a report comes each two; a save adds three."""


class Reporter:
    """Writes reports; says nothing when nobody asked for them. One that cannot be written is dropped and counted.

    `keeps`: they are asked for over HTTP.
    """

    def __init__(self, path: Path | None, termination_log: Path | None = TERMINATION_LOG, keeps: bool = False) -> None:
        self._path = path
        self._termination_log = termination_log
        self._keeps = keeps
        self._kept: deque[bytes] = deque(maxlen=KEPT)
        self._said = 0
        self._saved = b""
        self._lock = threading.Lock()
        self.lost = 0

    def since(self, number: int) -> tuple[bytes, int]:
        """The kept reports after the first `number` ones, and how many there were so far.

        A number that is larger than that is of another process: all that are kept."""
        with self._lock:
            new = self._said - number if 0 <= number <= self._said else self._said
            lines = list(self._kept)[-new:] if new else []
            return b"".join(lines), self._said

    def say(self, kind: str, **values: Value) -> None:
        """Append one report."""
        line = _line(kind, values)
        if kind == "saved":
            self._saved = line
        if self._keeps:
            with self._lock:
                self._kept.append(line)
                self._said += 1
        if self._path is None:
            return
        try:
            handle = os.open(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, line)  # one write: lines of several writers do not mix
            finally:
                os.close(handle)
        except OSError:
            self.lost += 1

    def last_word(self, kind: str, **values: Value) -> None:
        """Say it, and leave it where the cluster finds it after the process."""
        self.say(kind, **values)
        log = self._termination_log
        if log is None or not log.exists():
            return
        try:
            log.write_bytes(self._saved + _line(kind, values))
        except OSError:
            self.lost += 1


def _line(kind: str, values: dict[str, Value]) -> bytes:
    return (json.dumps({"kind": kind, "time_unix": clock.unix_now(), **values}) + "\n").encode()
