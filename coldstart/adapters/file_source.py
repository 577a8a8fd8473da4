"""Weights from a file of this machine, by ``file:///path``: read like any other source, and verified while copied.

No hard link: who owns the file may write it in place, and would change what was verified.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from coldstart.core.cache.content import Described, Span
from coldstart.core.cache.errors import SourceBroken, SourceRefused, UnsupportedSource, VersionMoved
from coldstart.ports import Channel
from events.units import Bytes


class FileSource:
    """One regular file."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.path = Path(unquote(parts.path))
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not self.path.is_absolute():
            raise UnsupportedSource(f"{url} does not name an absolute path; write file:///path")

    def shown(self) -> str:
        """The address."""
        return self.path.as_uri()

    def describe(self) -> Described:
        """Its length, and a version of inode, length and time of change."""
        try:
            told = self.path.stat()
        except OSError as error:
            raise SourceRefused(self.shown(), str(error.strerror)) from error
        if not stat.S_ISREG(told.st_mode):
            raise SourceBroken(self.shown(), "it is not a regular file; folders cannot be fetched yet")
        return Described(self.path.name, Bytes(told.st_size), _version(told), ranges=True)

    def connect(self) -> Channel:
        """For one thread."""
        return _FileChannel(self)


class _FileChannel:
    def __init__(self, source: FileSource) -> None:
        self._source = source

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """See the port."""
        try:
            with self._source.path.open("rb", buffering=0) as file:
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
