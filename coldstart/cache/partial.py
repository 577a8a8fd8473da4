"""A file that is being fetched: preallocated, with a journal of verified chunks from which a later process goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import orjson
from blake3 import blake3

from coldstart.cache.layout import delete, out_of_room, write_soon
from coldstart.cache.manifests import boot
from coldstart.core.cache.content import Described, Span, check_digest
from events.units import Bytes

"""What the system says when there is no room: of the disk, the quota, or the process's limit."""

_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
WIDTH = 8 + 1 + 64 + 1
"""A line of the journal: the chunk's number, its BLAKE3."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A file that is all there: its SHA-256, the BLAKE3 of its chunks, its time of change when it was verified."""

    digest: str
    chunks: tuple[str, ...]
    written_ns: int


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
        self._chunk_bytes = chunk_bytes
        self.digests: dict[int, str] = {}
        """BLAKE3 of each verified chunk, by its number in the file."""

    def __enter__(self) -> Self:
        """Open it; what another plan left is deleted. NoSpace: the room cannot be had, and nothing is left behind."""
        if not self._continues():
            delete(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.data.chmod(0o644)  # sealed by a try that was killed before it published
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
        """The chunks that the journal claims and whose bytes have the digest that it names, by their index in the plan;
        others are forgotten."""
        lines = os.pread(self._journal, len(self._head) + WIDTH * (2 * len(chunks) + 64), 0)[len(self._head) :]
        claimed = dict(filter(None, (_entry(lines[at : at + WIDTH]) for at in range(0, len(lines), WIDTH))))
        there = []
        for span in chunks:
            number = span.start // self._chunk_bytes
            wanted = claimed.get(number)
            if wanted is not None and self.digest(span, scratch) == wanted:
                self.digests[number] = wanted
                there.append(span.index)
        self._rewrite()
        return tuple(there)

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
            raise OSError(errno.EIO, f"{self.data} ends within the chunk at {span.start}")

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
        number = span.start // self._chunk_bytes
        self.digests[number] = digest
        try:
            os.write(self._journal, _line(number, digest))
        except OSError as error:
            raise self._told(error) from error

    def seal(self) -> None:
        """Read-only from now on."""
        os.fchmod(self._descriptor, 0o444)

    def mark_whole(self, digest: str) -> Whole:
        """The file is whole, and this is its SHA-256: until the machine boots anew, nobody needs to read it again."""
        chunks = tuple(self.digests[number] for number in range(len(self.digests)))
        whole = Whole(digest, chunks, os.fstat(self._descriptor).st_mtime_ns)
        told = {"head": self._head.decode(), "boot": boot(), **dataclasses.asdict(whole)}
        write_soon(self.folder / "whole", orjson.dumps(told))
        return whole

    def whole(self) -> Whole | None:
        """What `mark_whole` told of this version, if the file has not been written to since."""
        try:
            told = orjson.loads((self.folder / "whole").read_bytes())
            whole = Whole(check_digest(told["digest"]), tuple(map(str, told["chunks"])), int(told["written_ns"]))
            right = told["head"] == self._head.decode() and told["boot"] == boot()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return whole if right else None

    def _told(self, error: OSError) -> Exception:
        return (
            out_of_room(error, self.folder if self.folder.exists() else self.folder.parent, Bytes(self._size)) or error
        )


def _line(index: int, digest: str) -> bytes:
    return f"{index:08d} {digest}\n".encode()


def _entry(line: bytes) -> tuple[int, str] | None:
    if len(line) != WIDTH or not line[:8].isdigit() or not line.endswith(b"\n"):
        return None
    return int(line[:8]), line[9:73].decode("ascii", "replace")
