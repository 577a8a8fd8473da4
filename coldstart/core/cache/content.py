"""What is cached, as values: spans of a file, what sources say they have, digests, manifests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from events.units import Bytes, Instant, Seconds

_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


def check_digest(text: str) -> str:
    """``sha256:`` and 64 hexadecimal digits, in lower case; ValueError says what to write."""
    lowered = text.strip().lower()
    if not _DIGEST.match(lowered):
        raise ValueError(f"{text!r} is not a digest; write sha256: and its 64 hexadecimal digits")
    return lowered


def check_address(text: str) -> str:
    """An address without a user and a password, since it stands in declarations and thus in the log; ValueError says
    what to write."""
    _, found, rest = text.partition("://")
    if found and "@" in re.split(r"[/?#]", rest, maxsplit=1)[0]:
        raise ValueError("an address holds no user and no password; write credentials: env:NAME or file:/path")
    return text


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of a file: `index` in the plan, first byte, length in bytes (above zero), which `file` of the plan."""

    index: int
    start: int
    length: int
    file: int = 0

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Described:
    """What a source says about a file before any of it is read."""

    name: str
    """Relative, with ``/`` between folders: where it lies in the snapshot."""
    bytes: Bytes
    version: str
    """Changes when the content does: a strong ETag, else time and length. Never empty."""
    ranges: bool
    """Whether parts can be read."""
    digest: str | None = None
    """``sha256:…`` where the source vouches for it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source has at its address: one file, or several that belong together."""

    files: tuple[Described, ...]
    main: str
    """The file that an engine is given; empty: the folder of all."""
    version: str
    """Changes when any of them does."""
    pinned: bool = False
    """The version says what all files are, for ever, whichever of them are wanted: a commit."""


def alone(described: Described) -> Listing:
    """One file at an address of its own."""
    return Listing((described,), described.name, described.version)


def version_of(files: Iterable[Described]) -> str:
    """A version for a set of files that has none of its own."""
    lines = "".join(f"{file.name}\n{file.bytes}\n{file.version}\n" for file in sorted(files, key=lambda one: one.name))
    return f"set:{hashlib.sha256(lines.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A verified file, and the blob that holds it."""

    name: str
    bytes: Bytes
    version: str
    digest: str
    chunks: tuple[str, ...]
    """BLAKE3 of each chunk, hexadecimal, in order."""
    written_ns: int
    """The blob's time of change: another one means that somebody wrote to it."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One address and the verified content behind it. Written last: with it the weights are there."""

    source: str
    """The address without secrets."""
    place: str
    """Names the address, with its secrets, by a hash: the same place has the same files under the same versions."""
    version: str
    snapshot: str
    """Names the folder of hard links; follows from the names and digests."""
    main: str
    """The file that an engine is given; empty: the folder."""
    digest: str
    chunk_bytes: int
    files: tuple[Kept, ...]
    fetched_at: Instant
    fetch_seconds: Seconds
    boot: str
    """The boot of the machine in which it was written."""
    synced: bool
    """Whether the bytes are known to be on the disk; else they are verified anew after a reboot."""

    @property
    def bytes(self) -> Bytes:
        """Of all files together."""
        return Bytes(sum(file.bytes for file in self.files))


def digest_of(files: Iterable[Kept | Described], main: str) -> str:
    """The digest of what an address has. All files have theirs.

    One file at an address of its own: its SHA-256. Otherwise the SHA-256 of what ``sha256sum`` prints for all files
    in the order of their names: ``HEX  NAME`` and a line feed each.
    """
    known = sorted(files, key=lambda file: file.name.encode())
    if len(known) == 1 and known[0].name == main:
        return str(known[0].digest)
    lines = "".join(f"{str(file.digest).removeprefix('sha256:')}  {file.name}\n" for file in known)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
