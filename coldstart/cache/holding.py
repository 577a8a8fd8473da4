"""Who holds what: the folder's one writer, uses that die with their holder, pins, and how much weights are
asked for."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from coldstart.cache.layout import Layout, write_soon, write_whole
from coldstart.core.cache.errors import FolderTaken
from coldstart.core.cache.room import Heat
from events.units import Instant

COLD = Heat(0.0, Instant(0.0), 0.0)
"""Of weights that nobody is known to have asked for."""


@contextlib.contextmanager
def writing(layout: Layout) -> Iterator[None]:
    """Be the one writer of a folder, or FolderTaken with the other's pid. The kernel ends it with the process."""
    layout.make()
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderTaken(str(layout.root), _pid(descriptor)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


class Use:
    """A use of a snapshot: while it is held, and its holder lives, the snapshot is not evicted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @property
    def descriptor(self) -> int:
        """Of the lock. A process that inherits it holds the use as well, and ends it when it ends."""
        assert self._descriptor is not None, "the use has ended"
        return self._descriptor

    def end(self) -> None:
        """Harmless twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def take_use(layout: Layout, snapshot: str) -> Use | None:
    """Hold a snapshot; None: it is not there, or is being evicted. Any number may hold it, in any process."""
    descriptor = _locked(layout.uses / snapshot, fcntl.LOCK_SH)
    if descriptor is None:
        return None
    if not (layout.snapshots / snapshot).is_dir():
        os.close(descriptor)
        return None
    return Use(descriptor)


@contextlib.contextmanager
def unused(layout: Layout, snapshot: str) -> Iterator[bool]:
    """Whether nobody uses it; and while this lasts, nobody can begin to."""
    descriptor = _locked(layout.uses / snapshot, fcntl.LOCK_EX)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, kind: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def used(layout: Layout, snapshot: str) -> bool:
    """Whether a living holder uses it."""
    with unused(layout, snapshot) as free:
        return not free


def pinned(layout: Layout, snapshot: str) -> bool:
    """Whether it is pinned."""
    return (layout.pins / snapshot).exists()


def pin(layout: Layout, snapshot: str, wanted: bool) -> None:
    """Pin or unpin; harmless twice."""
    if wanted:
        write_whole(layout.pins / snapshot, b"")
    else:
        (layout.pins / snapshot).unlink(missing_ok=True)


def read_heat(layout: Layout, snapshot: str) -> Heat:
    """How much it was asked for; COLD where that cannot be read: it orders evictions, nothing else."""
    try:
        rate, at, clock = orjson.loads((layout.heat / snapshot).read_bytes())
        return Heat(float(rate), Instant(float(at)), float(clock))
    except (OSError, ValueError, TypeError):
        return COLD


def write_heat(layout: Layout, snapshot: str, heat: Heat) -> None:
    """Remember it. Not synced: losing it costs a worse eviction."""
    write_soon(layout.heat / snapshot, orjson.dumps([heat.rate, heat.at, heat.clock]))
