"""Processes that stand still, with their connections open."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def freeze(pid: int, within: float = 20.0) -> None:
    """SIGSTOP; returns when the last of its threads has heard it. Linux (elsewhere: once it is sent)."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + within  # noqa: TID251 - the time of a real process
    while any(state not in "TtZX" for state in _states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stand still"  # noqa: TID251 - as above
        time.sleep(0.002)


def _states(pid: int) -> list[str]:
    """One letter a thread, as in /proc/PID/stat."""
    states = []
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(thread.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0])
        except OSError:  # it ended meanwhile
            continue
    return states
