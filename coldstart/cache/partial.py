"""A file that is being fetched: preallocated, with a journal of verified chunks from which a later process goes on."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Self

from blake3 import blake3

from coldstart.cache.layout import delete
from coldstart.core.cache.content import Described, Span
from coldstart.core.cache.errors import NoSpace
from events.units import Bytes

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when there is no room: of the disk, the quota, or the process's limit."""

_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
WIDTH = 8 + 1 + 64 + 1
"""A line of the journal: the chunk's number, its BLAKE3."""


class Partial:
    """One partial file. Chunks are written by any thread, each by one; `record` is called under its user's lock."""

    def __init__(self, folder: Path, described: Described, chunk_bytes: int) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._journal_path = folder / "journal"
        self._head = f"{described.version}\n{described.bytes} {chunk_bytes}\n".encode()
        self._size = described.bytes
        self._descriptor = -1
        self._journal = -1
        self.digests: dict[int, str] = {}
        """BLAKE3 of each verified chunk."""

    def __enter__(self) -> Self:
        """Open it; what another plan left is deleted. NoSpace: the room cannot be had, and nothing is left behind."""
        if not self._continues():
            delete(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._descriptor = os.open(self.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._allocate()
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not os.fstat(self._journal).st_size:
                os.write(self._journal, self._head)
        except OSError as error:
            self.close()
            delete(self.folder)
            raise self._told(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        """What is verified stays on disk."""
        self.close()

    def close(self) -> None:
        """Harmless twice."""
        for descriptor in (self._descriptor, self._journal):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._journal = -1

    def _continues(self) -> bool:
        try:
            with self._journal_path.open("rb") as file:
                return file.read(len(self._head)) == self._head and self.data.stat().st_size == self._size
        except OSError:
            return False

    def _allocate(self) -> None:
        if not self._size or os.fstat(self._descriptor).st_size == self._size:
            return
        try:
            os.posix_fallocate(self._descriptor, 0, self._size)
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                raise
            os.ftruncate(self._descriptor, self._size)

    def recover(self, chunks: tuple[Span, ...], scratch: memoryview) -> tuple[int, ...]:
        """The chunks that the journal claims and whose bytes have the digest that it names; others are forgotten."""
        lines = os.pread(self._journal, len(self._head) + WIDTH * (2 * len(chunks) + 64), 0)[len(self._head) :]
        claimed = dict(filter(None, (_entry(lines[at : at + WIDTH]) for at in range(0, len(lines), WIDTH))))
        for span in chunks:
            wanted = claimed.get(span.index)
            if wanted is not None and self.digest(span, scratch) == wanted:
                self.digests[span.index] = wanted
        self._rewrite()
        return tuple(self.digests)

    def _rewrite(self) -> None:
        """The journal without what was torn or refuted. A crash in between forgets chunks, and claims none wrongly."""
        os.ftruncate(self._journal, len(self._head))
        os.lseek(self._journal, 0, os.SEEK_END)
        lines = b"".join(_line(index, digest) for index, digest in self.digests.items())
        if lines:
            os.write(self._journal, lines)

    def digest(self, span: Span, scratch: memoryview) -> str:
        """BLAKE3 of what the file holds there."""
        self.read(span, scratch)
        return blake3(scratch[: span.length]).hexdigest()

    def read(self, span: Span, into: memoryview) -> None:
        """Bytes that were written before."""
        got = os.preadv(self._descriptor, [into[: span.length]], span.start)
        if got != span.length:
            raise OSError(errno.EIO, f"{self.data} ends within chunk {span.index}")

    def write(self, span: Span, content: memoryview) -> None:
        """The bytes of a chunk; NoSpace where there is no room after all."""
        done = 0
        try:
            while done < span.length:
                done += os.pwrite(self._descriptor, content[done : span.length], span.start + done)
        except OSError as error:
            raise self._told(error) from error

    def record(self, span: Span, digest: str) -> None:
        """The chunk is written, and this is its digest."""
        self.digests[span.index] = digest
        try:
            os.write(self._journal, _line(span.index, digest))
        except OSError as error:
            raise self._told(error) from error

    def sync(self) -> None:
        """Onto the disk."""
        os.fsync(self._descriptor)

    def seal(self) -> None:
        """Read-only from now on."""
        os.fchmod(self._descriptor, 0o444)

    def _told(self, error: OSError) -> Exception:
        if error.errno not in FULL:
            return error
        free = 0
        with contextlib.suppress(OSError):
            told = os.statvfs(self.folder if self.folder.exists() else self.folder.parent)
            free = told.f_bavail * told.f_frsize
        return NoSpace(Bytes(self._size), Bytes(free), Bytes(free), why=f"the system says: {error.strerror}")


def _line(index: int, digest: str) -> bytes:
    return f"{index:08d} {digest}\n".encode()


def _entry(line: bytes) -> tuple[int, str] | None:
    if len(line) != WIDTH or not line[:8].isdigit() or not line.endswith(b"\n"):
        return None
    return int(line[:8]), line[9:73].decode("ascii", "replace")
