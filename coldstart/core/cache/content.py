"""What is cached, as values: spans of a file, digests of chunks, manifests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from events.units import Bytes, Instant, Seconds

_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


def check_digest(text: str) -> str:
    """``sha256:`` and 64 hexadecimal digits, in lower case; ValueError says what to write."""
    lowered = text.strip().lower()
    if not _DIGEST.match(lowered):
        raise ValueError(f"{text!r} is not a digest; write sha256: and its 64 hexadecimal digits")
    return lowered


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of a file: `index` in the plan, first byte, length in bytes (above zero)."""

    index: int
    start: int
    length: int

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Described:
    """What a source says about its content before any of it is read."""

    name: str
    """A file name without folders."""
    bytes: Bytes
    version: str
    """Changes when the content does: a strong ETag, else time and length. Never empty."""
    ranges: bool
    """Whether parts can be read."""
    digest: str | None = None
    """``sha256:…`` where the source vouches for it."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One address and the verified content behind it. Written last: with it the weights are there."""

    source: str
    """The address without secrets."""
    version: str
    snapshot: str
    """Names the folder of hard links; follows from the file's name and digest."""
    name: str
    bytes: Bytes
    digest: str
    chunk_bytes: int
    chunks: tuple[str, ...]
    """BLAKE3 of each chunk, hexadecimal, in order."""
    fetched_at: Instant
    fetch_seconds: Seconds
    written_ns: int
    """The blob's time of change: another one means that somebody wrote to it."""
    boot: str
    """The boot of the machine in which it was written."""
    synced: bool
    """Whether the bytes are known to be on the disk; else they are verified anew after a reboot."""
