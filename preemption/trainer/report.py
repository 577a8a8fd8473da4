"""What a trainer tells back: heard, progress, saved, could not save, goes on, finished. Losing a report loses no step.

A report is one JSON object a line, appended to the file that `RELUME_REPORT_FILE` names; the last word before leaving
also goes to Kubernetes' termination log, so that the proof survives when nothing else does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Union

from preemption.trainer import clock

Value = Union[str, int, float, None]

TERMINATION_LOG = Path("/dev/termination-log")
"""Where a container's last words go (Kubernetes: `terminationMessagePath`, 4 KiB a container)."""


class Reporter:
    """Writes reports; says nothing when nobody asked for them. One that cannot be written is dropped and counted."""

    def __init__(self, path: Path | None, termination_log: Path | None = TERMINATION_LOG) -> None:
        self._path = path
        self._termination_log = termination_log
        self.lost = 0

    def say(self, kind: str, **values: Value) -> None:
        """Append one report."""
        if self._path is None:
            return
        line = _line(kind, values)
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
            log.write_bytes(_line(kind, values))
        except OSError:
            self.lost += 1


def _line(kind: str, values: dict[str, Value]) -> bytes:
    return (json.dumps({"kind": kind, "time_unix": clock.unix_now(), **values}) + "\n").encode()
