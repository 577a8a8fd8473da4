"""The data folder: one running relume each.

::

    DATA/relume.lock     held (flock) by the running relume; its pid inside
    DATA/events.db…      the event log
    DATA/logs/           REPLICA.log and REPLICA.log.1, at most 5 MiB each
    DATA/doors/          a socket for each replica of a relume cluster, where the next one takes it over
    DATA/training/       training jobs: see `deploy.local.training.places`

What relume makes is for its owner alone (0700, 0600). A folder that was there before keeps its permissions, since it
may be somebody's own; the files in it are owner-only all the same.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

LOCK_NAME = "relume.lock"


class FolderInUse(Exception):
    """Another relume runs on this folder. `pid` is None in the moment before it has written its own."""

    def __init__(self, path: Path, pid: int | None) -> None:
        who = "another relume" if pid is None else f"the relume with pid {pid}"
        super().__init__(f"{path} is in use by {who}; stop it, or give this one another folder with --data-dir")
        self.path = path
        self.pid = pid


class FolderUnusable(Exception):
    """The folder cannot be made, or not be written."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that is ours as long as `close` was not called, or the process lives. Made by `open_folder`."""

    path: Path
    logs: Path
    lock: int
    """File descriptor of the lock."""

    @property
    def doors(self) -> Path:
        """Where the replicas' sockets are."""
        return self.path / "doors"

    @property
    def training(self) -> Path:
        """What training jobs have."""
        return self.path / "training"

    @property
    def mark(self) -> str:
        """How processes name this folder: the same text however the folder was written."""
        return str(self.path)

    def close(self) -> None:
        """Let others have it. The lock file stays: removing it would let two hold locks of the same name."""
        os.close(self.lock)


def open_folder(path: Path) -> DataFolder:
    """Make the folder if need be and take it. Raises FolderInUse, FolderUnusable.

    The lock ends with the process however it ends, so a lock file that was left behind is no hindrance.
    """
    return _take(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


def wait_for_folder(path: Path) -> DataFolder:
    """The same, once whoever has it has ended. Blocking: the kernel wakes us. Raises FolderUnusable."""
    return _take(path, fcntl.LOCK_EX)


def _take(path: Path, how: int) -> DataFolder:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = path.resolve()
        lock = os.open(real / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderUnusable(f"cannot use the data folder {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(lock, how)
        os.fchmod(lock, 0o600)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        logs = real / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        (real / "doors").mkdir(mode=0o700, exist_ok=True)
        (real / "training").mkdir(mode=0o700, exist_ok=True)
        (real / "training" / "logs").mkdir(mode=0o700, exist_ok=True)
    except BlockingIOError as error:
        holder = _read_pid(lock)
        os.close(lock)
        raise FolderInUse(real, holder) from error
    except OSError as error:
        os.close(lock)
        raise FolderUnusable(f"cannot use the data folder {path}: {error.strerror or error}") from error
    return DataFolder(path=real, logs=logs, lock=lock)


def holder_of(path: Path) -> int | None:
    """The pid of the relume that runs on this folder; None when none does."""
    try:
        lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(lock)
    else:
        return None
    finally:
        os.close(lock)


def _read_pid(lock: int) -> int | None:
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else None


def lasting_name(path: Path) -> str:
    """A name of the folder, made when it is first asked for: who has the folder now and who has it next are the same to
    others. Raises OSError."""
    file = path / "identity"
    if not file.exists():
        partial = file.with_suffix(".partial")
        partial.write_text(uuid.uuid4().hex, encoding="ascii")
        partial.replace(file)
    return file.read_text(encoding="ascii")


def name_if_ours(path: Path) -> str:
    """The same while this process has the folder, else an empty text: another living one may have the name."""
    try:
        return lasting_name(path) if holder_of(path) == os.getpid() else ""
    except OSError:
        return ""
