"""The page cache, ahead of an engine: whether a file is in memory, and reading it there in big sequential steps.

An engine that maps its weights faults them in page by page: 0.24 GB/s where reading has 1.2 (field note on cold
starts, §2 and §5). Reading ahead of it turns its faults into hits.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_PIECE = 8 << 20
_PROBES = 64
"""Pages that are looked at: enough to tell none, half and all apart."""
_SHARE = 0.8
"""Of the memory that is to be had, a file that takes more would drive out itself, and others with it. A choice."""

_Mincore = Callable[..., int]


def _mincore() -> _Mincore | None:
    """mincore(2) as Linux has it; None elsewhere."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None) if sys.platform == "linux" else None
    if found is not None:
        found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ubyte))
    return found


_MINCORE = _mincore()


def resident(path: Path) -> float | None:
    """Share of the pages in memory of a file, or of a folder's files, without reading any; None: that is not known.

    64 pages of each file are looked at, by mincore(2): a read with RWF_NOWAIT begins to read ahead what it does not
    find, so that the next look would find it. The kernel tells it to who owns the file.
    """
    if _MINCORE is None:
        return None
    there = total = 0.0
    try:
        for file in files_of(path):
            size = file.stat().st_size
            total += size
            there += size * _share(file, size, _MINCORE)
    except OSError:
        return None
    return there / total if total else 1.0


def files_of(path: Path) -> list[Path]:
    """The file, or all of a folder in the order of their names."""
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def _share(path: Path, size: int, mincore: _Mincore) -> float:
    with path.open("rb", buffering=0) as file:
        places = [size * number // _PROBES for number in range(_PROBES)] if size else []
        return sum(_there(file.fileno(), size, at, mincore) for at in places) / len(places) if places else 1.0


def _there(descriptor: int, size: int, at: int, mincore: _Mincore) -> bool:
    """Whether the page around `at` is in memory. OSError: the kernel does not tell."""
    begin = at - at % mmap.ALLOCATIONGRANULARITY
    length = min(mmap.PAGESIZE, size - begin)
    told = ctypes.c_ubyte()
    with mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=begin) as page:
        first = ctypes.c_char.from_buffer(page)
        failed = mincore(ctypes.addressof(first), length, ctypes.byref(told))
        del first  # else the mapping cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return bool(told.value & 1)


def warm(path: Path, stop: threading.Event) -> int:
    """Read a file, or a folder's, into the page cache, until `stop`; bytes read. Nothing where memory is too small."""
    buffer = mmap.mmap(-1, _PIECE)
    done = 0
    try:
        files = files_of(path)
        room = available()
        if room is not None and sum(file.stat().st_size for file in files) > _SHARE * room:
            return 0
        for file in files:
            done += _read(file, buffer, stop)
    except OSError:
        return done  # the engine reads it by itself, and says what is wrong with it
    finally:
        buffer.close()
    return done


def _read(path: Path, buffer: mmap.mmap, stop: threading.Event) -> int:
    done = 0
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while not stop.is_set() and (more := os.preadv(file.fileno(), [buffer], done)):
            done += more
    return done


def available() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
