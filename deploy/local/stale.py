"""Finds and kills processes that carry a replica's marks: of an earlier run, or that escaped their shim.

A process is ours when its environment, as it was at its start, names this data folder and a replica. Both marks are
asked for: a person may well have RELUME_DATA_DIR set in the shell that runs `relume up`.

A process that ends loses its memory first, its marks with it, and then its files, a card among them: for a moment, or
for long where a driver hangs, nothing tells any more whose it was, and it holds what it held. So those of this user are
waited for before it is said that nothing is left.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from deploy.local.environment import MARK_DATA, MARK_REPLICA

logger = logging.getLogger(__name__)

LOOKS_EVERY: Final = 0.01
"""Seconds between two looks at a process that ends: it takes as long as the kernel needs to free a gigabyte, 0.1 s."""
_EXITING: Final = 0x4
_KERNEL_THREAD: Final = 0x200000
"""Flags of a task (Linux, include/linux/sched.h: PF_EXITING, PF_KTHREAD)."""


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
            _wait_for_ending(bound)
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


def is_ending(pid: int) -> bool:
    """Whether a process is on its way out: without its memory, and perhaps with its files still. Linux; False
    elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    flags = int(fields[6])
    return fields[0] not in "ZX" and bool(flags & _EXITING) and not flags & _KERNEL_THREAD


def _wait_for_ending(bound: float) -> None:
    """Return when those that were ending when we came are gone, or after `bound` seconds. One of them may be a
    stranger's, so that it is told and no error."""
    if sys.platform != "linux":
        return
    ending = [pid for pid in psutil.pids() if _is_own(pid) and is_ending(pid)]
    for _ in range(int(bound / LOOKS_EVERY)):
        ending = [pid for pid in ending if is_ending(pid)]
        if not ending:
            return
        time.sleep(LOOKS_EVERY)
    logger.warning("processes %s have been ending for %g s: what they hold, cards perhaps, is not free", ending, bound)


def _is_own(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False


def _without(processes: Sequence[psutil.Process], spared: Collection[str]) -> list[psutil.Process]:
    return [process for process in processes if _environment(process).get(MARK_REPLICA, "") not in spared]
