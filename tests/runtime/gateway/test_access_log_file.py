"""The file of the access log: appended to, and standard error shared with whoever else writes there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.gateway.access_log import STANDARD_ERROR, AccessLine, AccessLog

LINE = AccessLine(
    time=0.0, request="r", trace=b"t", method=b"GET", path=b"/", model=None, caller=None, status=200, ending="finished",
    ms=1.0, held_ms=None, replica=None, bytes_in=0, bytes_out=0,
)  # fmt: skip


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Standard error leads to this file, as after ``2> file``: not opened for appending."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_standard_error_is_shared(tmp_path: Path) -> None:
    """Lines of the process's own log, before and after, and of the access log: none overwrites another."""
    path = tmp_path / "stderr"
    with stderr_to(path):
        os.write(2, b"before\n")
        log = AccessLog(STANDARD_ERROR)
        log.add(LINE)
        log.close()
        os.write(2, b"after\n")
    before, line, after = path.read_text().splitlines()
    assert (before, json.loads(line)["request"], after) == ("before", "r", "after")


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    """What stood there stays."""
    path = tmp_path / "access.log"
    for _ in range(2):
        log = AccessLog(path)
        log.add(LINE)
        log.close()
    assert [json.loads(line)["status"] for line in path.read_text().splitlines()] == [200, 200]


def test_a_path_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    """OSError, at once."""
    with pytest.raises(OSError, match="No such file"):
        AccessLog(tmp_path / "none" / "access.log")
