"""The process that fetches is killed, or has no room: what was verified is kept, what was not is never shown."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_of
from coldstart.cache import holding
from coldstart.cache.layout import Layout, key
from coldstart.cache.partial import WIDTH
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import FolderTaken, NoSpace
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock
from tests.support.flaky_origin import Origin, served

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 16 << 10


def started(folder: Path, url: str, *connections: int) -> subprocess.Popen[str]:
    """A fetch in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.fetch_once", str(folder), url, str(CHUNK), *map(str, connections)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def claimed(folder: Path, url: str) -> set[int]:
    """First bytes of the chunks that the journal has whole lines of."""
    journal = folder / "partial" / key(url) / "journal"
    if not journal.exists():
        return set()
    lines = journal.read_bytes().split(b"\n", 2)[2]
    return {int(lines[at : at + 8]) * CHUNK for at in range(0, len(lines) - len(lines) % WIDTH, WIDTH)}


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_again_and_again_it_goes_on(tmp_path: Path, kills: int) -> None:
    """`kill -9` at random requests: no verified chunk is asked for again, nothing half is shown, the end is right."""
    draw = random.Random(kills)
    content = draw.randbytes(kills * 8 * CHUNK + 77)
    folder = tmp_path / "weights"
    with served(Origin(content)) as origin:
        process = None

        def kill(number: int) -> str:
            if number == last and process is not None:
                process.send_signal(signal.SIGKILL)
            return ""

        origin.faults = kill
        before: set[int] = set()
        for _ in range(kills):
            last = origin.data_requests + draw.randint(0, 7)
            asked_before = len(origin.starts)
            process = started(folder, origin.url)
            assert process.wait(60) == -signal.SIGKILL
            again = before & set(origin.starts[asked_before:])
            assert not again, "verified chunks were asked for again"
            assert list((folder / "snapshots").iterdir()) == []
            before = claimed(folder, origin.url)
            process.communicate()
        last, asked_before = -1, len(origin.starts)
        process = started(folder, origin.url)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert before, "something was verified before the last kill"
    assert not before & set(origin.starts[asked_before:])
    assert int(out) <= len(content) - len(before) * CHUNK + CHUNK * 16
    (snapshot,) = (folder / "snapshots").glob("*/*")
    assert snapshot.read_bytes() == content


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_with_sixteen_connections_it_goes_on(tmp_path: Path, kills: int) -> None:
    """`kill -9` while sixteen chunks are on their way at once, in any order: nothing that was verified is asked for
    again, what is asked for again was on its way and no more, nothing half is shown, and the end is right."""
    draw = random.Random(16 + kills)
    content = draw.randbytes((kills + 1) * 40 * CHUNK + 77)
    folder = tmp_path / "weights"
    with served(Origin(content)) as origin:
        origin.rate = CHUNK / 0.05  # the sixteen are at work at once, each of them in the middle of its chunk
        for _ in range(kills):
            asked_before, before = len(origin.starts), claimed(folder, origin.url)
            last = asked_before + draw.randint(20, 36)
            process = started(folder, origin.url, 16)
            wait_until(lambda last=last: len(origin.starts) >= last and origin.busy == 16)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
            asked = origin.starts[asked_before:]
            assert not before & set(asked), "verified chunks were asked for again"
            lost = set(asked) - claimed(folder, origin.url)
            assert len(lost) <= 17, "more than sixteen on their way and one that was being written"
            assert list((folder / "snapshots").iterdir()) == []
        origin.rate, asked_before, before = None, len(origin.starts), claimed(folder, origin.url)
        out, err = started(folder, origin.url, 16).communicate(timeout=60)
        assert out, err
        assert len(before) >= 4 * kills
        assert not before & set(origin.starts[asked_before:])
        assert int(out) <= len(content) - len(before) * CHUNK + CHUNK
    (snapshot,) = (folder / "snapshots").glob("*/*")
    assert snapshot.read_bytes() == content


def test_a_claim_without_its_bytes_is_refuted(tmp_path: Path) -> None:
    """As after a power cut: the journal claims chunks whose bytes never reached the disk. They are fetched anew."""
    content = random.Random(1).randbytes(20 * CHUNK)
    folder = tmp_path / "weights"
    with served(Origin(content)) as origin:
        process = None

        def kill(number: int) -> str:
            if number == 12 and process is not None:
                process.send_signal(signal.SIGKILL)
            return ""

        origin.faults = kill
        process = started(folder, origin.url)
        process.wait(60)
        process.communicate()
        harmed = min(claimed(folder, origin.url))
        with (folder / "partial" / key(origin.url) / "data").open("r+b") as data:
            data.seek(harmed)
            data.write(bytes(CHUNK))
        with (folder / "partial" / key(origin.url) / "journal").open("ab") as journal:
            journal.write(b"00000019 torn")
        asked_before = len(origin.starts)
        process = None
        out, err = started(folder, origin.url).communicate(timeout=60)
        assert out, err
    assert harmed in origin.starts[asked_before:]
    (snapshot,) = (folder / "snapshots").glob("*/*")
    assert snapshot.read_bytes() == content


def test_the_lock_and_the_uses_of_a_killed_process_end(tmp_path: Path) -> None:
    """While it fetches, another is refused with its pid; killed, the folder is free at once."""
    folder = tmp_path / "weights"
    with served(Origin(bytes(CHUNK * 4))) as origin:
        origin.open_gate.clear()
        process = started(folder, origin.url)
        weights = WeightCache(folder, FetchPolicy(chunk_bytes=CHUNK), RoomPolicy(), SystemClock())
        wait_until(lambda: bool(origin.data_requests))
        with pytest.raises(FolderTaken) as refused:
            weights.fetch(Wanted(origin.url), source_of(origin.url, {}, FetchPolicy(), SystemClock()), Progress())
        assert refused.value.pid == process.pid
        process.kill()
        process.communicate(timeout=60)
        origin.open_gate.set()
        with holding.writing(Layout(folder)):
            pass


def wait_until(holds: Callable[[], bool]) -> None:
    """What another process brings about."""
    deadline = SystemClock().now() + 30
    while not holds():
        assert SystemClock().now() < deadline, "it did not come to that"
        threading.Event().wait(0.001)


@pytest.mark.parametrize("bound", [0, CHUNK // 2, 5 * CHUNK])
def test_no_room_after_all_is_told_at_once(tmp_path: Path, bound: int) -> None:
    """The system refuses the allocation (a limit on the size of files, like a full disk): typed, nothing is left."""
    folder = tmp_path / "weights"
    policy = FetchPolicy(chunk_bytes=CHUNK)
    with served(Origin(bytes(10 * CHUNK))) as origin:
        weights = WeightCache(folder, policy, RoomPolicy(), SystemClock())
        weights.layout.make()
        source = source_of(origin.url, {}, policy, SystemClock())
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        (folder / "lock").write_text("0")
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(bound, 64), hard))
        try:
            with pytest.raises(NoSpace, match="the system says"):
                weights.fetch(Wanted(origin.url), source, Progress())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert origin.data_requests == 0
        assert list((folder / "partial").iterdir()) == []
        got = weights.fetch(Wanted(origin.url), source, Progress())
    assert got.path.read_bytes() == bytes(10 * CHUNK)
