"""Where things lie in the folder of the cache, and writing them so that a crash leaves the old or the new, never half.

``lock`` · ``blobs/sha256/aa/HEX`` (0444) · ``partial/KEY/{data,journal,whole}`` · ``manifests/KEY.json`` ·
``snapshots/ID/NAME`` (hard links, in folders where names have ``/``) · ``uses/ID`` · ``pins/ID`` · ``heat/ID`` ·
``quarantine/HEX`` · ``trash/``.
The disk is the truth: there is no other state.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from coldstart.core.cache.errors import NoSpace
from events.units import Bytes

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when a write has no room."""

BLOCK = Bytes(4096)
"""What a small file takes of most disks."""

FOLDERS = ("blobs/sha256", "partial", "manifests", "snapshots", "uses", "pins", "heat", "quarantine", "trash")


class Layout:
    """The paths of one cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.partial = root / "partial"
        self.manifests = root / "manifests"
        self.snapshots = root / "snapshots"
        self.uses = root / "uses"
        self.pins = root / "pins"
        self.heat = root / "heat"
        self.quarantine = root / "quarantine"
        self.trash = root / "trash"

    def make(self) -> None:
        """Make the folders; harmless when they are there."""
        for folder in FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def blob(self, digest: str) -> Path:
        """Where the content of this digest (``sha256:HEX``) lies."""
        algorithm, _, value = digest.partition(":")
        return self.root / "blobs" / algorithm / value[:2] / value

    def manifest(self, address: str) -> Path:
        """What is known of an address. Its name tells nothing of the address, which may hold a secret."""
        return self.manifests / f"{key(address)}.json"

    def partial_of(self, address: str, name: str) -> Path:
        """Where a file of an address is fetched to; an empty name: the one file of the address."""
        return self.partial / key(f"{address}\n{name}" if name else address)

    def discard(self, path: Path) -> None:
        """Out of sight at once, by a rename; the bytes go when `empty_trash` runs. Harmless when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(self.trash / f"{path.name}.{secrets.token_hex(4)}")

    def empty_trash(self) -> None:
        """Delete what was discarded: a quarter of a second a GiB on a disk that discards (measured)."""
        for path in self.trash.iterdir():
            delete(path)


def out_of_room(error: OSError, folder: Path, needed: Bytes) -> NoSpace | None:
    """What a write that failed means, if it is that the disk of `folder` is full."""
    if error.errno not in FULL:
        return None
    free = 0
    with contextlib.suppress(OSError):
        told = os.statvfs(folder)
        free = told.f_bavail * told.f_frsize
    return NoSpace(needed, Bytes(free), Bytes(free), why=f"the system says: {error.strerror}")


def key(text: str) -> str:
    """A name for the disk: 32 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def snapshot_id(main: str, digest: str) -> str:
    """The same files under the same names are the same snapshot, wherever they came from."""
    return key(f"{main}\n{digest}")


def delete(path: Path) -> None:
    """A file or a folder, read-only or not, there or not."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a small file and sync it: the old content or the new, never half, also after a power cut."""
    with _replacing(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_soon(path: Path, content: bytes) -> None:
    """Replace a small file without waiting for the disk: after a power cut it may be empty, never half otherwise.

    To sync even a small file waits for all that was written before it (ext4's ordered mode).
    """
    with _replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with scratch.open("wb") as file:
            yield file
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def allocated(path: Path) -> int:
    """Bytes that a file takes of the disk: preallocated ones count, holes do not. 0: there is none."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
