"""The page cache, ahead of an engine: whether a file is in memory, and reading it there in big sequential steps.

An engine that maps its weights faults them in page by page: 0.24 GB/s where reading has 1.2 (field note on cold
starts, §2 and §5). Reading ahead of it turns its faults into hits.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

_PIECE = 8 << 20
_PROBES = 64
"""Pages that are looked at: enough to tell none, half and all apart."""
_SHARE = 0.8
"""Of the memory that is to be had, a file that takes more would drive out itself, and others with it. A choice."""


def resident(path: Path) -> float | None:
    """Share of a file's pages in memory, from 64 of them, without reading any; None: the system does not tell."""
    nowait = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return None
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            page = bytearray(1)
            places = [size * number // _PROBES for number in range(_PROBES)] if size else []
            return sum(_there(file.fileno(), page, at, nowait) for at in places) / len(places) if places else 1.0
    except OSError:
        return None


def _there(descriptor: int, page: bytearray, at: int, nowait: int) -> bool:
    try:
        return os.preadv(descriptor, [page], at, nowait) > 0
    except BlockingIOError:
        return False


def warm(path: Path, stop: threading.Event) -> int:
    """Read a file into the page cache, until `stop`; bytes read. Nothing where it would not fit into memory."""
    buffer = mmap.mmap(-1, _PIECE)
    done = 0
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            room = available()
            if room is not None and size > _SHARE * room:
                return 0
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while done < size and not stop.is_set():
                more = os.preadv(file.fileno(), [buffer], done)
                if not more:
                    break
                done += more
    except OSError:
        return done  # the engine reads it by itself, and says what is wrong with it
    finally:
        buffer.close()
    return done


def available() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
