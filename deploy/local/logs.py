"""Replicas' logs: `DATA/logs/REPLICA.log`, and `.log.1` with what was before it. Written by the shim, read here.

Reads are of bounded pieces and block for the time of a read from the page cache; `replica_logs`, for who has a loop to
keep free, makes them in a thread.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Final

RUN_MARK: Final = "=== relume: "
"""Begins the line that the shim writes before each run's output."""
LONGEST_LINE: Final = 2000
TAIL_BYTES: Final = 256 << 10
_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9]{0,199}")
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class UnknownReplica(Exception):
    """There is no log of that name."""


def log_path(folder: Path, replica: str) -> Path:
    """Where a replica's log is. Raises UnknownReplica for what cannot be a replica's name (a path, say)."""
    if _NAME.fullmatch(replica) is None:
        raise UnknownReplica(f"{replica!r} is not the name of a replica")
    return folder / f"{replica}.log"


def log_size(path: Path) -> int:
    """Bytes in the present file; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail(path: Path, lines: int, *, last_run: bool = True) -> tuple[str, ...]:
    """The last lines, of the last run only or of whatever is there. Long lines are cut; colours are taken out."""
    text = _read_end(path, TAIL_BYTES)
    missing = TAIL_BYTES - len(text)
    if missing > 0:
        text = _read_end(path.with_name(path.name + ".1"), missing) + text
    found: deque[str] = deque(maxlen=lines)
    for raw in text.decode(errors="replace").splitlines():
        if last_run and raw.startswith(RUN_MARK):
            found.clear()
        else:
            found.append(clean(raw))
    return tuple(found)


def clean(line: str) -> str:
    """A line without colours and control characters, cut to `LONGEST_LINE`."""
    return _CONTROL.sub("", line)[:LONGEST_LINE]


def _read_end(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read(most)
    except OSError:
        return b""


def read_from(path: Path, position: int) -> tuple[bytes, int]:
    """What stands after a position, at most 256 KiB, and the position after it. A shorter file is a new one."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = position if position <= size else 0
            file.seek(start)
            data = file.read(TAIL_BYTES)
            return data, start + len(data)
    except OSError:
        return b"", 0


def prune_logs(folder: Path, keep: int, spared: frozenset[str] = frozenset()) -> int:
    """Remove the logs that were written longest ago, beyond `keep` files. Returns how many went. Blocking.

    Those of the `spared` replicas (they run) stay, and do not count.
    """
    dated: list[tuple[float, Path]] = []
    for path in folder.glob("*.log*"):
        if path.name.partition(".")[0] in spared:
            continue
        try:
            dated.append((path.stat().st_mtime, path))
        except OSError:
            continue  # it was renamed by its shim
    dated.sort(reverse=True)
    for _, path in dated[keep:]:
        path.unlink(missing_ok=True)
    return max(0, len(dated) - keep)
