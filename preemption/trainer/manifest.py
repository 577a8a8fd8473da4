"""The manifest: what a checkpoint consists of, so that a reader can tell a whole one from a part of one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "MANIFEST.json"
COMMITTED = "COMMITTED"
"""Written last, and the only mark that counts: stores without an atomic rename of folders keep the order of writes."""

BLOCK = 1 << 20


class BadCheckpoint(ValueError):
    """What is on disk is not a whole checkpoint. The message says which file, and what is wrong with it."""


@dataclass(frozen=True)
class FileEntry:
    """One file: path from the checkpoint's folder (with slashes), bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All files of the checkpoint after `step` completed steps, saved by `world` ranks."""

    step: int
    world: int
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def encode(self) -> str:
        """As it stands in its file: one object, keys in order."""
        files = [{"path": entry.path, "sha256": entry.sha256, "size": entry.size} for entry in self.files]
        return json.dumps({"files": files, "step": self.step, "version": 1, "world": self.world}, indent=1) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest itself: it names the whole content."""
        return hashlib.sha256(self.encode().encode()).hexdigest()


def decode(text: str) -> Manifest:
    """The manifest that `text` is. Raises BadCheckpoint."""
    try:
        said = json.loads(text)
        files = tuple(FileEntry(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in said["files"])
        manifest = Manifest(int(said["step"]), int(said["world"]), files)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadCheckpoint(f"{NAME} cannot be read: {error!r}") from None
    if said.get("version") != 1:
        raise BadCheckpoint(f"{NAME} has version {said.get('version')!r}; this release reads 1")
    return manifest


def files_of(folder: Path) -> list[Path]:
    """All files below `folder` but our own marks, in one order for all who look."""
    marks = {folder / NAME, folder / COMMITTED}
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in marks)


def describe(folder: Path, path: Path) -> FileEntry:
    """Read one file to its end."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while True:
            block = file.read(BLOCK)
            if not block:
                break
            digest.update(block)
            size += len(block)
    return FileEntry(path.relative_to(folder).as_posix(), size, digest.hexdigest())


def read(folder: Path) -> Manifest:
    """The manifest of a committed checkpoint whose files all have their sizes. Raises BadCheckpoint."""
    if not (folder / COMMITTED).is_file():
        raise BadCheckpoint(f"there is no {COMMITTED}: its writer did not come to the end")
    try:
        manifest = decode((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadCheckpoint(f"{NAME} cannot be read: {error}") from None
    for entry in manifest.files:
        try:
            size = (folder / entry.path).stat().st_size
        except OSError as error:
            raise BadCheckpoint(f"{entry.path} cannot be read: {error.strerror}") from None
        if size != entry.size:
            raise BadCheckpoint(f"{entry.path} has {size} bytes, not {entry.size}")
    return manifest


def verify(folder: Path, entries: Sequence[FileEntry]) -> None:
    """Read these files and compare their content. Raises BadCheckpoint."""
    for entry in entries:
        try:
            found = describe(folder, folder / entry.path)
        except OSError as error:
            raise BadCheckpoint(f"{entry.path} cannot be read: {error.strerror}") from None
        if found != entry:
            raise BadCheckpoint(f"{entry.path} is damaged: SHA-256 {found.sha256}, not {entry.sha256}")
