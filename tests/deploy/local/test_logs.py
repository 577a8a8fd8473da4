"""Replicas' logs: the end of them, of one run or all, and as they grow."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deploy.local.logs import LONGEST_LINE, RUN_MARK, TAIL_BYTES, UnknownReplica, log_path, prune_logs, tail
from deploy.local.replica_logs import ReplicaLogFiles
from events.clock import SystemClock


def write(path: Path, text: str) -> None:
    """Append as the shim does."""
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "..", "a" * 300, "A", "x\n"])
def test_only_names_of_replicas(tmp_path: Path, name: str) -> None:
    """A name from outside can never be a path."""
    with pytest.raises(UnknownReplica):
        log_path(tmp_path, name)


def test_tail_of_the_last_run(tmp_path: Path) -> None:
    """Of a replica that was started twice the second run's lines count, or all when asked for."""
    path = tmp_path / "m-r1-0.log"
    write(path, f"{RUN_MARK}first\none\n{RUN_MARK}second\ntwo\n\x1b[31mthree\x1b[0m\r\n")
    assert tail(path, 50) == ("two", "three")
    assert tail(path, 1) == ("three",)
    assert tail(path, 3, last_run=False) == (f"{RUN_MARK}second", "two", "three")


def test_tail_over_a_rotation(tmp_path: Path) -> None:
    """What was written just before the log was rotated is found in the older file."""
    path = tmp_path / "m-r1-0.log"
    write(path.with_name(path.name + ".1"), f"{RUN_MARK}run\nold\nolder is not\n")
    write(path, "new\n")
    assert tail(path, 50) == ("old", "older is not", "new")


def test_tail_is_bounded(tmp_path: Path) -> None:
    """A huge line is cut, a huge file is read from its end, and what is not text does no harm."""
    path = tmp_path / "m-r1-0.log"
    path.write_bytes(b"x" * (TAIL_BYTES * 2) + b"\n\xff\xfe\nlast\n")
    lines = tail(path, 50)
    assert len(lines[0]) == LONGEST_LINE
    assert lines[-1] == "last"
    assert tail(tmp_path / "none.log", 50) == ()


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    """Old logs go when there are too many; the newest stay, and those of replicas that run."""
    for number in range(6):
        path = tmp_path / f"m-r{number}-0.log"
        write(path, "x")
        os.utime(path, (1000 + number, 1000 + number))
    assert prune_logs(tmp_path, keep=2, spared=frozenset({"m-r1-0"})) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m-r1-0.log", "m-r4-0.log", "m-r5-0.log"]


async def test_tail_for_people(tmp_path: Path) -> None:
    """The last lines of all runs; None for a replica that never was, and for what is no name."""
    logs = ReplicaLogFiles(tmp_path, SystemClock(), lambda _: False)
    write(tmp_path / "m-r1-0.log", "a\nb\nc\n")
    assert await logs.tail("m-r1-0", 2) == ("b", "c")
    assert await logs.tail("m-r1-1", 2) is None
    assert await logs.tail("../m-r1-0", 2) is None


async def test_follow_over_rotation_until_the_end(tmp_path: Path) -> None:
    """Lines come as they are written, also after a rotation; the last ones too; then it ends with the replica."""
    path = tmp_path / "m-r1-0.log"
    alive = [True]
    write(path, "before\nlast before\n")
    logs = ReplicaLogFiles(tmp_path, SystemClock(), lambda _: alive[0])
    got: list[str] = []

    async def read() -> None:
        async for line in logs.follow("m-r1-0", 1):
            got.append(line)
            came.set()

    async def until(count: int) -> None:
        async with asyncio.timeout(5.0):
            while len(got) < count:
                await came.wait()
                came.clear()

    came = asyncio.Event()
    reading = asyncio.create_task(read())
    await until(1)
    write(path, "whole\nha")
    await until(2)
    write(path, "lf\n")
    await until(3)
    path.rename(path.with_name(path.name + ".1"))
    write(path, "new\n")
    await until(4)
    alive[0] = False
    write(path, "end\n")
    await asyncio.wait_for(reading, 5.0)
    assert got == ["last before", "whole", "half", "new", "end"]
    assert [line async for line in logs.follow("../x", 1)] == []
