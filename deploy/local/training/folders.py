"""Where a run's files are, below the data folder. Everything here blocks: call it in a thread.

::

    DATA/training/logs/MEMBER.log                what a member wrote, over all runs; MEMBER.log.1 before that
    DATA/training/jobs/JOB/UID/work              where it starts unless its declaration names a folder; see `purge`
    DATA/training/jobs/JOB/UID/runs/N            notice.json, reports.jsonl, board/, and a door and a last word a member
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.folder import DataFolder
from events.names import is_dns_label

logger = logging.getLogger(__name__)

KEPT_RUNS: Final = 3
"""Of a job: the present one, and two for people who want to know what was said."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's files."""

    root: Path
    """Of the job."""
    run: int

    @property
    def path(self) -> Path:
        """Of the run."""
        return self.root / "runs" / str(self.run)

    @property
    def work(self) -> Path:
        """The job's own."""
        return self.root / "work"

    @property
    def notice(self) -> Path:
        """What the trainer looks at."""
        return self.path / "notice.json"

    @property
    def reports(self) -> Path:
        """What rank 0 appends to."""
        return self.path / "reports.jsonl"

    @property
    def board(self) -> Path:
        """Where the ranks meet."""
        return self.path / "board"

    def door(self, rank: int) -> Path:
        """The socket at which the next relume takes a member over."""
        return self.path / f"door-{rank}"

    def word(self, rank: int) -> Path:
        """How a member ended."""
        return self.path / f"end-{rank}"

    def make(self) -> None:
        """Make it, empty, and remove those of long ago. Raises OSError."""
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)  # of a run that was begun and not recorded
        self.board.mkdir(mode=0o700, parents=True)
        runs = sorted((int(one.name), one) for one in self.path.parent.iterdir() if one.name.isdigit())
        for _, old in runs[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)


def run_folder(data: DataFolder, job: str, uid: str, run: int) -> RunFolder:
    """Where the run's files are. A uid that cannot be a folder's name is hashed."""
    return RunFolder(data.training / "jobs" / job / _name(uid), run)


def purge(data: DataFolder, job: str, kept: str) -> list[str]:
    """Remove the folders of all jobs that had this name but the one with the uid `kept`: checkpoints too. (A job's
    checkpoints are its user's: nothing else ever removes them.) What was removed; what could not be stays, and is
    logged."""
    if not is_dns_label(job):  # it would lead elsewhere
        return []
    removed = []
    root = data.training / "jobs" / job
    for one in sorted(root.iterdir()) if root.is_dir() else ():
        if kept and one.name == _name(kept):
            continue
        try:
            shutil.rmtree(one)
            removed.append(str(one))
        except OSError as error:
            logger.warning("%s cannot be removed: %s", one, error)
    return removed


def _name(uid: str) -> str:
    return uid if _PLAIN.fullmatch(uid) else hashlib.sha256(uid.encode()).hexdigest()[:32]


def logs_of(data: DataFolder) -> Path:
    """Where the members' logs are."""
    return data.training / "logs"


def mark_of(uid: str, run: int, member: str) -> str:
    """What names a member's processes in their environment (see `deploy.local.stale`)."""
    return f"training/{uid}/{run}/{member}"
