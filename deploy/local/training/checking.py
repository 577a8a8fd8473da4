"""Looks whether a checkpoint that a trainer told of is whole: marked, listed, and all files of their sizes."""

from __future__ import annotations

import asyncio
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from deploy.local.training.story import Saved
from events.types.training import CheckpointStatus
from events.units import Seconds
from preemption.trainer import manifest as manifests
from preemption.trainer.manifest import BadCheckpoint

LARGEST_MANIFEST: Final = 64 << 20
"""Bytes: half a million files."""
BOUND: Final = Seconds(60.0)
"""For all of it: sizes of files are asked for, nothing is read; a file server that needs longer is stuck."""
AT_ONCE: Final = 4


class Checker:
    """Checks, each in a thread of its own: one that hangs in a file server holds up neither the loop nor other work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="checkpoints")

    async def check(self, saved: Saved, folder: Path) -> CheckpointStatus:
        """What it is, seen from `folder`, where the trainer started. Raises BadCheckpoint."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(BOUND):
                return await loop.run_in_executor(self._threads, look_at, saved, folder)
        except TimeoutError:
            raise BadCheckpoint(f"{saved.path} could not be looked at within {BOUND:g} s") from None
        except OSError as error:
            raise BadCheckpoint(f"{saved.path} cannot be read: {error}") from None

    def close(self) -> None:
        """Begin nothing more; what hangs is left."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def look_at(saved: Saved, folder: Path) -> CheckpointStatus:
    """The checkpoint; not `verified` where the trainer names no manifest. Blocking. Raises BadCheckpoint."""
    if not saved.manifest or not saved.path:
        return CheckpointStatus(
            step=saved.step, at=saved.at, path=saved.path, size=saved.size, seconds=saved.seconds, verified=False
        )
    path = folder / saved.path
    _check_is_file(path / manifests.COMMITTED, LARGEST_MANIFEST)
    _check_is_file(path / manifests.NAME, LARGEST_MANIFEST)
    found = manifests.read(path)
    if found.step != saved.step:
        raise BadCheckpoint(f"{path} is of step {found.step}, and the trainer said {saved.step}")
    marked = (path / manifests.COMMITTED).read_text(encoding="utf-8", errors="replace").strip()
    for whose, digest in (("the trainer said", saved.manifest), ("its mark says", marked)):
        if digest != found.digest:
            raise BadCheckpoint(f"{path} has the manifest {found.digest}, and {whose} {digest[:100]}")
    return CheckpointStatus(
        step=saved.step, at=saved.at, path=str(path), manifest=found.digest, size=found.size, seconds=saved.seconds,
        verified=True,
    )  # fmt: skip


def _check_is_file(path: Path, most: int) -> None:
    """Something else under that name, such as a pipe, would be waited for; a giant one would fill our memory."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path.name} of {path.parent} cannot be read: {error}") from None
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise BadCheckpoint(f"{path} is no file of at most {most} bytes")
