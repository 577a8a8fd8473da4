"""Weights from a file or a folder of this machine, by ``file:///path``: read like any other source, and verified while
copied.

No hard link: who owns the file may write it in place, and would change what was verified.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from coldstart.adapters.companions import companions
from coldstart.core.cache.content import Described, Listing, Span, alone, version_of
from coldstart.core.cache.errors import SourceBroken, SourceRefused, UnsupportedSource, VersionMoved
from coldstart.core.cache.selection import FILES_MOST, INDEX_BYTES_MOST
from coldstart.ports import Channel
from events.units import Bytes


class FileSource:
    """A regular file, a folder with all below it, or the files that the one that is named belongs to."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.path = Path(unquote(parts.path))
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not self.path.is_absolute():
            raise UnsupportedSource(f"{url} does not name an absolute path; write file:///path")
        self.folder = self.path.parent
        """Names of files are relative to it."""

    def shown(self) -> str:
        """The address."""
        return self.path.as_uri()

    def fixed(self) -> str | None:
        """Files may change."""
        return None

    def describe(self) -> Listing:
        """Lengths, and versions of inode, length and time of change.

        Links to files are followed, those to folders are not.
        """
        try:
            if self.path.is_dir():
                self.folder = self.path
                found = islice(_below(self.path), FILES_MOST + 1)
                files = tuple(self._described(str(path.relative_to(self.path))) for path in sorted(found))
                return Listing(files, "", version_of(files))
            self.folder = self.path.parent
            first = self._described(self.path.name)
            names = companions(first, self._index, self.shown())
            if names == (first.name,):
                return alone(first)
            files = tuple(self._described(name) for name in names)
        except OSError as error:
            raise SourceRefused(self.shown(), str(error.strerror)) from error
        return Listing(files, first.name if first.name.endswith(".gguf") else "", version_of(files))

    def _described(self, name: str) -> Described:
        told = (self.folder / name).stat()
        if not stat.S_ISREG(told.st_mode):
            raise SourceBroken(self.shown(), f"{name} is neither a regular file nor a folder")
        return Described(name, Bytes(told.st_size), _version(told), ranges=True)

    def _index(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(INDEX_BYTES_MOST)

    def connect(self) -> Channel:
        """For one thread at a time."""
        return _FileChannel(self)


def _below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place) / name for name in names)


class _FileChannel:
    def __init__(self, source: FileSource) -> None:
        self._source = source

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """See the port."""
        try:
            with (self._source.folder / of.name).open("rb", buffering=0) as file:
                if _version(os.fstat(file.fileno())) != of.version:
                    raise VersionMoved
                done = 0
                while done < span.length:
                    more = os.preadv(file.fileno(), [into[done : span.length]], span.start + done)
                    if not more:
                        raise VersionMoved
                    done += more
                if _version(os.fstat(file.fileno())) != of.version:
                    raise VersionMoved
        except OSError as error:
            raise SourceRefused(self._source.shown(), str(error.strerror)) from error

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """See the port."""
        at = 0
        while at < of.bytes:
            part = min(len(into), of.bytes - at)
            self.read(Span(0, at, part), of, into)
            take(part)
            at += part

    def close(self) -> None:
        """Each read opens the file by itself, and cannot be broken off."""


def _version(told: os.stat_result) -> str:
    return f"{told.st_ino}-{told.st_size}-{told.st_mtime_ns}"
