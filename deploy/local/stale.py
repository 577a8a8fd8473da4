"""Finds and kills processes that carry a replica's marks: of an earlier run, or that escaped their shim.

A process is ours when its environment, as it was at its start, names this data folder and a replica. Both marks are
asked for: a person may well have RELUME_DATA_DIR set in the shell that runs `relume up`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import psutil

from deploy.local.environment import MARK_DATA, MARK_REPLICA


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that carries the marks."""

    pid: int
    replica: str


class StaleProcessesRemain(Exception):
    """Processes of an earlier run could not be killed, so cards and memory are not free."""

    def __init__(self, remaining: Sequence[Marked]) -> None:
        pids = ", ".join(f"{one.pid} ({one.replica})" for one in remaining)
        super().__init__(f"processes of an earlier run do not end: {pids}; end them or restart the machine")
        self.remaining = tuple(remaining)


def find_marked(data_dir: str, replica: str | None = None) -> list[psutil.Process]:
    """Processes of this folder's replicas, or of one replica. Never this process or those above it. Blocking."""
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        marks = _environment(process) if process.pid not in spared else {}
        named = marks.get(MARK_REPLICA)
        if named and marks.get(MARK_DATA) == data_dir and replica in (None, named):
            found.append(process)
    return found


def find_named(data_dir: str, names: Collection[str]) -> list[int]:
    """Pids of this folder's processes that carry one of these names. Blocking."""
    return [one.pid for one in find_marked(data_dir) if _environment(one).get(MARK_REPLICA) in names]


def _environment(process: psutil.Process) -> dict[str, str]:
    """The environment at its start; empty for processes that ended, are zombies or belong to others."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def kill_marked(
    data_dir: str, replica: str | None = None, bound: float = 5.0, spared: Collection[str] = ()
) -> list[Marked]:
    """Kill them all and wait until they are gone. Returns who was killed. Blocking: call it in a thread.

    Processes of the `spared` replicas go on.

    Looks again until none is found, since one that forks may slip through. Raises StaleProcessesRemain when some are
    still there after about `bound` seconds.
    """
    killed: list[Marked] = []
    rounds = 10
    for _ in range(rounds):
        processes = _without(find_marked(data_dir, replica), spared)
        if not processes:
            return killed
        killed += [Marked(process.pid, _environment(process).get(MARK_REPLICA, "")) for process in processes]
        for process in processes:
            try:
                process.kill()
            except psutil.Error:
                continue  # it ended meanwhile, or the next round says that it cannot be killed
        psutil.wait_procs(processes, timeout=bound / rounds)
    remaining = _without(find_marked(data_dir, replica), spared)
    if remaining:
        raise StaleProcessesRemain([Marked(one.pid, _environment(one).get(MARK_REPLICA, "")) for one in remaining])
    return killed


def _without(processes: Sequence[psutil.Process], spared: Collection[str]) -> list[psutil.Process]:
    return [process for process in processes if _environment(process).get(MARK_REPLICA, "") not in spared]
