"""The machine: what it is, how busy it is, and the CPU time of a process, exactly."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import psutil


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, living and ended, without its children. Raises ProcessLookupError.

    On Linux from the process's own CPU clock (clock_getcpuclockid: the pid's complement shifted by three, and 2 for the
    scheduler's clock), in nanoseconds; elsewhere from psutil, in hundredths of a second.
    """
    if platform.system() == "Linux":
        try:
            return time.clock_gettime((~pid << 3) | 2)
        except OSError as error:
            raise ProcessLookupError(pid) from error
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(pid) from error
    return float(times.user + times.system)


def tree_cpu_seconds(pid: int) -> float:
    """The same with all its children that live."""
    pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return sum(cpu_seconds(each) for each in pids)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(psutil.Process(pid).memory_info().rss)


def pin(pid: int, core: int | None) -> None:
    """Keep all threads of a process on one core; None, or a system without affinity: nothing."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        return
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, {core})


def cores() -> tuple[int | None, int | None]:
    """(core of the load and the upstream, core of the proxy that is measured): one each where there are two or more.

    Separate, so that no contender's caches are emptied by what measures it.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    own = sorted(os.sched_getaffinity(0))
    return (own[0], own[1]) if len(own) > 1 else (None, None)


def in_words() -> str:
    """The machine, its versions, and its load, in a line."""
    load = os.getloadavg()[0]
    return (
        f"{psutil.cpu_count()} x {_cpu_name()}, {psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}, load average {load:.1f}"
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
