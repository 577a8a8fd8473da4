"""Checkpoints on disk: written beside, committed by rename, pruned only when newer ones are whole.

``<folder>/step-000000000042/`` with the user's files, `MANIFEST.json` and, last, `COMMITTED`; while it is written it is
``step-000000000042.partial``. Nothing here overwrites a committed checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from preemption.trainer import manifest as manifests
from preemption.trainer.manifest import BadCheckpoint, FileEntry, Manifest

PARTIAL = ".partial"
BAD = ".bad"
_NAME = re.compile(r"step-(\d{1,18})")

ROOM = 1.2
"""Free space wanted before a save, in sizes of the last checkpoint."""


class NoRoom(OSError):
    """The disk has not enough free space for another checkpoint; nothing was written."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: after so many completed steps."""

    step: int
    path: Path
    manifest: Manifest


class Store:
    """The checkpoints in one folder. Only rank 0 calls what changes it."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 2:
            raise ValueError(f"keep: at least 2 checkpoints, so that one stays when the newest is damaged; not {keep}")
        self.folder = folder
        self._keep = keep

    def partial(self, step: int) -> Path:
        """Where the checkpoint after `step` steps is written."""
        return self.folder / (_name(step) + PARTIAL)

    def final(self, step: int) -> Path:
        """Where the checkpoint after `step` steps stands once committed."""
        return self.folder / _name(step)

    def begin(self, step: int) -> Path:
        """An empty folder to write into. Raises NoRoom, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sweep()
        last = next(self.candidates(), None)
        if last is not None:
            self._want_room(last.manifest.size)
        partial = self.partial(step)
        partial.mkdir()
        return partial

    def commit(self, step: int, world: int, files: tuple[FileEntry, ...]) -> Checkpoint:
        """Make what was written the checkpoint after `step` steps; it is durable on return. Raises OSError."""
        partial, final = self.partial(step), self.final(step)
        manifest = Manifest(step, world, tuple(sorted(files, key=lambda entry: entry.path)))
        if final.exists():  # of an earlier life, at the same step: a whole one stays
            try:
                return Checkpoint(step, final, manifests.read(final))
            except BadCheckpoint:
                self._set_aside(final)
        _write(partial / manifests.NAME, manifest.encode())
        for path in {partial, *(p.parent for p in manifests.files_of(partial))}:
            _sync_folder(path)
        partial.rename(final)
        _write(final / manifests.COMMITTED, manifest.digest + "\n")
        _sync_folder(final)
        _sync_folder(self.folder)
        return Checkpoint(step, final, manifest)

    def abandon(self, step: int) -> None:
        """Remove what was written so far."""
        shutil.rmtree(str(self.partial(step)), ignore_errors=True)

    def candidates(self) -> Iterator[Checkpoint]:
        """Whole checkpoints, newest first: those that are marked, and whose files have their sizes."""
        for step, path in self._marked():
            try:
                yield Checkpoint(step, path, manifests.read(path))
            except BadCheckpoint:
                continue

    def newest(self, *, verify_content: bool) -> Checkpoint | None:
        """The newest whole checkpoint; with its content compared too, if asked, which reads all of it."""
        for checkpoint in self.candidates():
            try:
                if verify_content:
                    manifests.verify(checkpoint.path, checkpoint.manifest.files)
            except BadCheckpoint:
                continue
            return checkpoint
        return None

    def damaged(self) -> list[tuple[Path, str]]:
        """Folders that look like checkpoints and are none, with the reason."""
        found = []
        for _, path in self._marked():
            try:
                manifests.read(path)
            except BadCheckpoint as error:
                found.append((path, str(error)))
        return found

    def prune(self) -> None:
        """Remove whole checkpoints beyond those to keep. Damaged ones are left for people to look at."""
        for checkpoint in list(self.candidates())[self._keep :]:
            (checkpoint.path / manifests.COMMITTED).unlink()  # from here on it is no candidate, wherever we die
            shutil.rmtree(str(checkpoint.path), ignore_errors=True)

    def sweep(self) -> None:
        """Remove what saves that never ended have left."""
        for path in self.folder.glob("step-*" + PARTIAL):
            shutil.rmtree(str(path), ignore_errors=True)
        for _, path in self._marked():
            if not (path / manifests.COMMITTED).exists():
                shutil.rmtree(str(path), ignore_errors=True)

    def _marked(self) -> list[tuple[int, Path]]:
        try:
            inside = list(self.folder.iterdir())
        except FileNotFoundError:
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in inside]
        return sorted(((int(name.group(1)), path) for name, path in named if name), reverse=True)

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(path.name + BAD)
        shutil.rmtree(str(aside), ignore_errors=True)
        path.rename(aside)

    def _want_room(self, last: int) -> None:
        free = shutil.disk_usage(str(self.folder)).free
        if free < ROOM * last:
            raise NoRoom(f"{self.folder}: {free} bytes free, but a checkpoint takes about {int(ROOM * last)}")


def _name(step: int) -> str:
    return f"step-{step:012d}"


def sync_file(path: Path) -> None:
    """Make a file that others wrote durable."""
    handle = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_sync_folder = sync_file  # a folder's entries are made durable in the same way


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
