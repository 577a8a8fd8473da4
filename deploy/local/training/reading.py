"""The report file, read as it grows. Blocking: call it in a thread.

The trainer appends, opening the file anew for each line, so it may be put aside while it is written: above `ASIDE`
bytes it is renamed, read to its end, and removed once nothing comes any more. A file that became shorter is a new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.local.training.report import LONGEST_LINE

ASIDE: Final = 8 << 20
"""Bytes: some eighty thousand reports; a day of the SDK's heartbeats is four megabytes."""
PIECE: Final = 1 << 20
"""Bytes read at a time."""


class ReportFile:
    """Lines of one file. `read` gives those that are new."""

    def __init__(self, path: Path, aside: int = ASIDE) -> None:
        self._path = path
        self._old = path.with_name(path.name + ".old")
        self._aside = aside
        self._position = 0
        self._rest = b""
        self._skipping = False
        self._reads_old = self._old.exists()  # an earlier relume was at it
        self._quiet = 0

    def read(self) -> list[bytes]:
        """Whole lines, at most `PIECE` bytes; empty when there are no more now. Unreadable now: as if empty."""
        data = self._more(self._old if self._reads_old else self._path)
        if data:
            self._quiet = 0
            return self._lines(data)
        if self._reads_old:
            self._finish_old()
        elif self._position > self._aside:
            self._put_aside()
        return []

    def read_last(self) -> list[bytes]:
        """The end: what the writer left without a line's end counts too. Call it when `read` gives no more."""
        lines = [self._rest] if self._rest and not self._skipping else []
        self._rest = b""
        return lines

    def _more(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._position:
                    self._position, self._rest, self._skipping = 0, b"", False
                file.seek(self._position)
                data = file.read(PIECE)
        except OSError:
            return b""
        self._position += len(data)
        return data

    def _lines(self, data: bytes) -> list[bytes]:
        """Whole lines; of one that is too long nothing is kept, up to its end."""
        first, *others = data.split(b"\n")
        if not others:
            self._keep(self._rest + first)
            return []
        lines = [] if self._skipping else [self._rest + first]
        self._rest, self._skipping = b"", False
        self._keep(others.pop())
        return [line for line in (*lines, *others) if line.strip() and len(line) <= LONGEST_LINE]

    def _keep(self, rest: bytes) -> None:
        self._skipping = self._skipping or len(rest) > LONGEST_LINE
        self._rest = b"" if self._skipping else rest

    def _put_aside(self) -> None:
        """Rename it. Who has it open still appends to it, so it is read on."""
        try:
            self._path.replace(self._old)
        except OSError:
            return  # the next look tries again
        self._reads_old, self._quiet = True, 0

    def _finish_old(self) -> None:
        """Nothing came in two looks: nobody has it open any more."""
        self._quiet += 1
        if self._quiet > 1:
            try:
                self._old.unlink(missing_ok=True)
            except OSError:
                return  # the next look tries again
            self._reads_old, self._position, self._rest, self._skipping = False, 0, b"", False
