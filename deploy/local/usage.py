"""What the processes of replicas use: CPU seconds and memory, by tree.

Memory is what the kernel cannot take back: anonymous pages of all processes, and shared memory once (the largest, since
workers of one engine share theirs). Mapped weights are not counted: they are page cache, shared by all replicas of a
model, and dropped when memory runs short. Where the kernel does not tell them apart (macOS) it is the resident size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from events.units import Seconds

_STAT_BYTES = 1024
"""More than any line of ``/proc/PID/stat``: 52 numbers and a name."""


@dataclass(frozen=True, slots=True)
class TreeUse:
    """One replica's processes together."""

    cpu_seconds: Seconds
    memory_bytes: int


class _Process(NamedTuple):
    """One process of the machine."""

    pid: int
    parent: int
    cpu_seconds: float


def measure_trees(roots: Iterable[int]) -> Mapping[int, TreeUse]:
    """Use of the processes below each root (a shim), by root. Roots with none are left out. Blocking.

    Parents are looked up once for all, and on Linux straight from ``/proc`` (1 ms per 100 processes of the machine,
    a tenth of what psutil takes): this is done each second as long as anything runs.
    """
    below: dict[int, list[_Process]] = {}
    for process in _linux_processes() if sys.platform == "linux" else _processes():
        below.setdefault(process.parent, []).append(process)
    found: dict[int, TreeUse] = {}
    for root in roots:
        tree = list(below.get(root, []))
        for process in tree:  # grows while it is walked
            tree += below.get(process.pid, [])
        if tree:
            found[root] = _add_up(tree)
    return found


def _linux_processes() -> Iterator[_Process]:
    ticks = os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if not name.isdigit():
            continue
        try:
            file = os.open(f"/proc/{name}/stat", os.O_RDONLY)
        except OSError:
            continue  # it ended meanwhile
        try:
            line = os.read(file, _STAT_BYTES)
        except OSError:
            continue
        finally:
            os.close(file)
        yield parse_stat(int(name), line, ticks)


def parse_stat(pid: int, line: bytes, ticks: int) -> _Process:
    """Parent and CPU time in ``/proc/PID/stat`` (proc_pid_stat(5)): fields 4, 14 and 15. The name, field 2, may hold
    anything, also blanks and parentheses, so what counts is behind the last one."""
    fields = line[line.rindex(b")") + 2 :].split(b" ", 13)
    return _Process(pid, int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks)


def _processes() -> Iterator[_Process]:
    for process in psutil.process_iter(["ppid", "cpu_times"]):
        times = process.info["cpu_times"]
        cpu = times.user + times.system if times else 0.0
        yield _Process(process.pid, process.info["ppid"] or 0, cpu)


def _add_up(tree: Iterable[_Process]) -> TreeUse:
    cpu, private, shared = 0.0, 0, 0
    for process in tree:
        try:
            own, common = _memory(process.pid)
        except (psutil.Error, OSError):
            continue  # it ended meanwhile
        cpu += process.cpu_seconds
        private += own
        shared = max(shared, common)
    return TreeUse(cpu_seconds=Seconds(cpu), memory_bytes=private + shared)


def _memory(pid: int) -> tuple[int, int]:
    """Bytes of one process: its own, and those it shares by shared memory."""
    if sys.platform != "linux":
        return psutil.Process(pid).memory_info().rss, 0
    sizes = parse_status(Path(f"/proc/{pid}/status").read_text())
    return sizes.get("RssAnon", 0), sizes.get("RssShmem", 0)


def parse_status(text: str) -> dict[str, int]:
    """The sizes in ``/proc/PID/status``, in bytes."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number, _, unit = rest.strip().partition(" ")
        if unit == "kB" and number.isdigit():
            sizes[name] = int(number) << 10
    return sizes
