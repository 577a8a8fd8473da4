"""The page cache: looking changes nothing, reading does."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from coldstart.cache.warming import resident, warm

MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are in memory")


def dropped(path: Path, size: int) -> Path:
    """A file that is on the disk alone; on a file system in memory it stays there."""
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def test_looking_reads_nothing(tmp_path: Path) -> None:
    """However often: what was not in memory is still not, and what is, is seen after it was read."""
    (tmp_path / "weights").mkdir()
    for name, size in (("a", 16 * MIB), ("b", 3 * MIB + 17), ("empty", 0)):
        dropped(tmp_path / "weights" / name, size)
    looks = [resident(tmp_path / "weights") for _ in range(5)]
    assert set(looks) in ({0.0}, {1.0})
    assert warm(tmp_path / "weights", threading.Event()) == 19 * MIB + 17
    assert resident(tmp_path / "weights") == 1.0


def test_a_half(tmp_path: Path) -> None:
    """Shares are told, not only all or nothing; a file that is gone is unknown."""
    path = dropped(tmp_path / "file", 32 * MIB)
    in_memory = resident(path) == 1.0
    with path.open("rb", buffering=0) as file:
        file.read(16 * MIB)
    share = resident(path)
    assert share is not None
    assert in_memory or 0.4 < share < 0.95, "what was read, and what the kernel read ahead"
    assert resident(tmp_path / "nothing") is None
