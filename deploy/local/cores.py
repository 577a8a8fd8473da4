"""Which cores a replica runs on: the hard part of its CPU limit.

A replica that was granted 1.5 cores is kept on two (its affinity, which its children inherit), those that carry least;
below a core nothing is enforced but its share among equals: engines of one niceness get equal parts of a core that they
share. A process can undo its own affinity; engines do not. Without affinity (macOS) only the thread counts in the
environment hold it back.
"""

from __future__ import annotations

import os
from math import ceil


def own_cores() -> tuple[int, ...]:
    """The cores that this process may use; empty where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


class Cores:
    """Who is on which core. Giving back what was never taken is a bug and raises."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self._load = dict.fromkeys(cores, 0.0)
        self._taken: dict[str, tuple[tuple[int, ...], float]] = {}

    def take(self, replica: str, cpu: float) -> None:
        """Choose cores for a replica, the least loaded ones."""
        count = ceil(cpu) if cpu > 0 else 0
        chosen = tuple(sorted(sorted(self._load, key=lambda core: (self._load[core], core))[:count]))
        share = cpu / len(chosen) if chosen else 0.0
        for core in chosen:
            self._load[core] += share
        self._taken[replica] = (chosen, share)

    def of(self, replica: str) -> tuple[int, ...]:
        """The cores of a replica; empty: all (no limit, or as many as there are)."""
        chosen, _ = self._taken[replica]
        return () if len(chosen) == len(self._load) else chosen

    def give_back(self, replica: str) -> None:
        """The replica is gone."""
        chosen, share = self._taken.pop(replica)
        for core in chosen:
            self._load[core] -= share
