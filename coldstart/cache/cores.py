"""How many cores a process could have: those that it keeps busy, and those that nobody does."""

from __future__ import annotations

import os
import time
from pathlib import Path

from events.clock import Clock

STAT = Path("/proc/stat")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of the process's own group in a container: microseconds of CPU in each so many."""

_IDLE = (4, 5)
"""Words of a core's line in /proc/stat (proc_stat(5)): idle, and idle while something waits for a disk."""


_ALWAYS = 1.0
"""Cores that are to be had however busy the machine is: others leave them to who is waited for. A choice; without it a
fetch among twenty processes a core stayed at two connections and took half as long again (measured)."""

_LEAST = 0.05
"""Seconds that are looked at together, but for the first time: the kernel counts in hundredths."""


class Cores:
    """What was to be had since it was last asked. Linux tells of it; elsewhere it is not known."""

    def __init__(self, clock: Clock, stat: Path = STAT, quota: Path = QUOTA) -> None:
        self._clock = clock
        self._stat = stat
        self._most = _most(quota)
        self._since = self._now()
        self._told: float | None = None

    def to_be_had(self) -> float | None:
        """Cores, as a mean since the last time, or the time before that where it was just now; None: nobody can say."""
        now = self._now()
        if now is None or self._since is None or self._most is None:
            return None
        passed, own, idle = (later - before for later, before in zip(now, self._since, strict=True))
        if passed >= _LEAST or (self._told is None and passed > 0):
            self._told = min(self._most, max(_ALWAYS, (own + idle) / passed))
            self._since = now
        return self._told

    def _now(self) -> tuple[float, float, float] | None:
        idle = _idle(self._stat)
        return None if idle is None else (self._clock.now(), time.process_time(), idle)


def _most(quota: Path) -> float | None:
    """What the process may have: the cores that it is bound to, and its group's quota."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    bound = float(len(os.sched_getaffinity(0)))
    try:
        allowed, _, period = quota.read_text(encoding="ascii").partition(" ")
        return bound if allowed == "max" else min(bound, int(allowed) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return bound


def _idle(stat: Path) -> float | None:
    """Seconds in which the cores that the process is bound to had nothing to do, since the machine booted."""
    try:
        bound = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        own = [words for words in lines if words and words[0] in bound]
        if not own:
            return None
        return sum(int(words[at]) for words in own for at in _IDLE) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError, IndexError):
        return None
