"""What the processes of replicas use: CPU seconds and memory, by tree.

Memory is what the kernel cannot take back: anonymous pages of all processes, and shared memory once (the largest, since
workers of one engine share theirs). Mapped weights are not counted: they are page cache, shared by all replicas of a
model, and dropped when memory runs short. Where the kernel does not tell them apart (macOS) it is the resident size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from events.units import Seconds


@dataclass(frozen=True, slots=True)
class TreeUse:
    """One replica's processes together."""

    cpu_seconds: Seconds
    memory_bytes: int
    processes: int


def measure_trees(roots: Iterable[int]) -> Mapping[int, TreeUse]:
    """Use of the processes below each root (a shim), by root. Roots with none are left out. Blocking: ~1 ms per 50
    processes of the machine, since parents are looked up once for all."""
    below: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        below.setdefault(process.info["ppid"] or 0, []).append(process)
    found: dict[int, TreeUse] = {}
    for root in roots:
        tree = list(below.get(root, []))
        for process in tree:  # grows while it is walked
            tree += below.get(process.pid, [])
        if tree:
            found[root] = _add_up(tree)
    return found


def _add_up(tree: Iterable[psutil.Process]) -> TreeUse:
    cpu, private, shared, count = 0.0, 0, 0, 0
    for process in tree:
        try:
            times = process.cpu_times()
            own, common = _memory(process)
        except (psutil.Error, OSError):
            continue  # it ended meanwhile
        cpu += times.user + times.system
        private += own
        shared = max(shared, common)
        count += 1
    return TreeUse(cpu_seconds=Seconds(cpu), memory_bytes=private + shared, processes=count)


def _memory(process: psutil.Process) -> tuple[int, int]:
    """Bytes of one process: its own, and those it shares by shared memory."""
    if sys.platform != "linux":
        return process.memory_info().rss, 0
    sizes = parse_status(Path(f"/proc/{process.pid}/status").read_text())
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
