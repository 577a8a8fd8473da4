"""Saving and loading by all ranks together: nobody commits what one rank could not write.

A save has two halves. *Writing* is the user's callback. *Sealing* makes the files durable, hashes them, and commits. A
callback that has only copied the state aside (staged it) and returns something with a `result()` to wait for is sealed
after that; a thread may do it while training goes on. Then it is the same kind of thing on all ranks.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Callable, Protocol, runtime_checkable

from preemption.trainer import manifest as manifests
from preemption.trainer.board import Ranks
from preemption.trainer.manifest import FileEntry
from preemption.trainer.report import Reporter
from preemption.trainer.settings import GuardSettings
from preemption.trainer.store import Checkpoint, Store, sync_file

Callback = Callable[[Path], object]


@runtime_checkable
class Upload(Protocol):
    """What a callback returns that has staged the state and still writes it: a future."""

    def result(self) -> object:
        """Wait until all is written. Raises what went wrong."""


class SaveFailed(RuntimeError):
    """A rank could not write its part. What was committed before still stands; training may go on."""


class RestoreFailed(RuntimeError):
    """There are whole checkpoints, and none of them can be loaded. The message is the newest one's trouble."""


class Saver:
    """The checkpoints of one run of `ranks.world` processes on one shared folder."""

    def __init__(self, store: Store, ranks: Ranks, settings: GuardSettings, save: Callback) -> None:
        self._store = store
        self._ranks = ranks
        self._settings = settings
        self._save = save
        self._sealers = ranks.beside("seal")

    def write(self, step: int) -> Upload | None:
        """The first half, on all ranks; returns what is still being written. Raises SaveFailed, RankLost."""
        folder = self._store.partial(step)
        self._together(self._ranks, lambda: self._store.begin(step) if self._ranks.leads else None, step)
        returned: list[object] = []
        self._together(self._ranks, lambda: returned.append(self._save(folder)), step)
        return returned[0] if isinstance(returned[0], Upload) else None

    def seal(self, step: int, upload: Upload | None) -> Checkpoint:
        """The second half, on all ranks: wait, hash, commit, prune. In any one thread. Raises SaveFailed, RankLost."""
        ranks, patience, folder = self._sealers, self._settings.patience, self._store.partial(step)
        self._together(ranks, lambda: None if upload is None else upload.result(), step)
        seen: list[str] = []
        self._together(ranks, lambda: seen.extend(_names(folder)), step)
        # A shared file system may be late to show one rank what another wrote: what any of them sees is there.
        names = sorted({name for part in ranks.gather(json.dumps(seen), patience) for name in json.loads(part)})
        entries: list[FileEntry] = []
        self._together(ranks, lambda: entries.extend(self._my_share(folder, names)), step)
        mine = json.dumps([[entry.path, entry.size, entry.sha256] for entry in entries])
        files = tuple(FileEntry(*entry) for part in ranks.gather(mine, patience) for entry in json.loads(part))
        files = tuple(sorted(files, key=_path))
        self._together(ranks, lambda: self._commit(step, files) if ranks.leads else None, step)
        return Checkpoint(step, self._store.final(step), manifests.Manifest(step, ranks.world, files))

    def restore(self, load: Callback, reporter: Reporter) -> int:
        """Load the newest whole checkpoint that all ranks can load. Returns its step; 0 when there is none at all.

        Raises RestoreFailed, RankLost.
        """
        if self._ranks.leads:
            for path, reason in self._store.damaged():
                reporter.say("damaged", path=str(path), message=reason)
        below = 1 << 62
        first_trouble = ""
        while True:
            step = int(self._ranks.follow(str(self._newest(below)), self._settings.patience))
            if step == 0:
                if first_trouble:
                    raise RestoreFailed(f"no checkpoint can be loaded; the newest: {first_trouble}")
                return 0
            trouble = self._ranks.all_well(self._attempt(partial(self._load, step, load)), self._settings.patience)
            if not trouble:
                return step
            if self._ranks.leads:
                reporter.say("restore_bad", step=step, message=trouble)
            first_trouble = first_trouble or f"step {step}: {trouble}"
            below = step

    def bytes_written(self, step: int) -> int:
        """Size of what is written so far of an unfinished save."""
        total = 0
        for path in manifests.files_of(self._store.partial(step)):
            try:
                total += path.stat().st_size
            except OSError:  # renamed or removed meanwhile
                continue
        return total

    def _newest(self, below: int) -> int:
        """Rank 0: the newest whole checkpoint, older than the one that could not be loaded."""
        if not self._ranks.leads:
            return 0
        steps = (checkpoint.step for checkpoint in self._store.candidates())
        return next((step for step in steps if step < below), 0)

    def _load(self, step: int, load: Callback) -> None:
        path = self._store.final(step)
        if self._settings.verify_content:
            files = manifests.read(path).files
            manifests.verify(path, files[self._ranks.rank :: self._ranks.world])
        load(path)

    def _my_share(self, folder: Path, names: list[str]) -> list[FileEntry]:
        """Each rank makes durable and hashes its part of all files, whoever wrote them."""
        entries = []
        for name in names[self._ranks.rank :: self._ranks.world]:
            sync_file(folder / name)
            entries.append(manifests.describe(folder, folder / name))
        return entries

    def _commit(self, step: int, files: tuple[FileEntry, ...]) -> None:
        self._store.commit(step, self._ranks.world, files)
        self._store.prune()

    def _together(self, ranks: Ranks, work: Callable[[], object], step: int) -> None:
        """Do a part; if any rank failed in it, all do as if they had."""
        trouble = ranks.all_well(self._attempt(work), self._settings.patience)
        if trouble:
            if ranks.leads:
                self._store.abandon(step)
            raise SaveFailed(trouble)

    def _attempt(self, work: Callable[[], object]) -> str:
        """Why it failed; empty when it did not. Users' code may raise anything; none of it may end the other ranks."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - told to all ranks, and reported
            return f"rank {self._ranks.rank}: {type(error).__name__}: {error}"
        return ""


def _path(entry: FileEntry) -> str:
    return entry.path


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in manifests.files_of(folder)]
