"""The parts of one process: one that stands by, what is told of other processes, whose folder is whose."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.api.board import Board
from deploy.api.ports import Reading
from deploy.api.problem import ProblemError
from deploy.compose.cluster import ClusterHow, ClusterPart
from deploy.compose.part import InBackground, until_one_ends
from deploy.compose.roles import Role, folder_of, hold_folder, known_as
from deploy.compose.telling import AllTraffic, LogsElsewhere
from deploy.local.folder import DataFolder, open_folder, wait_for_folder
from deploy.local.settings import LocalSettings
from deploy.settings.settings import load_settings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.types.gateways import GatewayBeat
from events.types.models import ModelDeclared
from events.types.requests import Levels, RequestWindow
from events.units import Instant, Seconds
from events.writer import EventWriter
from tests.support.admin import FakeTraffic, Load
from tests.support.needs import ROOT

NOW = 1_000_000.0


class At:
    """A clock that stands."""

    def now(self) -> Instant:
        return Instant(NOW)

    async def sleep_until(self, instant: Instant) -> None:
        raise AssertionError("nobody sleeps here")


WRITER = EventWriter("relume/gateway/g", At())


@dataclass
class FakePart:
    """Starts when `go` is set; notes what was asked of it."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    failure: Exception | None = None

    async def start(self) -> None:
        self.asked.append("start")
        await self.go.wait()
        if self.failure is not None:
            raise self.failure
        self.asked.append("started")

    async def wait(self) -> None:
        self.asked.append("wait")

    async def stop(self, bound: Seconds) -> None:
        self.asked.append(f"stop {bound}")

    def missing(self) -> Sequence[str]:
        return ["stands by"]

    def read(self) -> Iterable[Reading]:
        return [Reading("x", "x", 1.0)]


class TestInBackground:
    """A part whose start may take for ever."""

    async def test_it_starts_meanwhile(self) -> None:
        """`start` returns at once; `wait` waits for the start, and then for the part."""
        part = FakePart()
        behind = InBackground(part)
        await behind.start()
        waiting = asyncio.create_task(behind.wait())
        await asyncio.sleep(0)
        assert part.asked == ["start"]
        assert list(behind.missing()) == ["stands by"]
        part.go.set()
        await waiting
        assert part.asked == ["start", "started", "wait"]

    async def test_what_keeps_it_from_starting_is_raised_by_wait(self) -> None:
        """So the process ends with it."""
        part = FakePart(failure=OSError("no"))
        behind = InBackground(part)
        await behind.start()
        part.go.set()
        with pytest.raises(OSError, match="no"):
            await behind.wait()

    async def test_stopped_while_it_stands_by(self) -> None:
        """The start is given up, and the part stopped all the same."""
        part = FakePart()
        behind = InBackground(part)
        await behind.start()
        await asyncio.sleep(0)
        await behind.stop(Seconds(1.0))
        assert part.asked == ["start", "stop 1.0"]

    async def test_stopped_before_its_start(self) -> None:
        """Another part's start failed before its turn."""
        part = FakePart()
        await InBackground(part).stop(Seconds(1.0))
        assert part.asked == ["stop 1.0"]


async def test_the_first_that_ends_ends_the_waiting() -> None:
    """What it raised is raised; a coroutine beside it ends too, and a task, which is somebody else's, goes on."""
    ended, never = asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        try:
            await never.wait()
        finally:
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("broken")

    theirs = asyncio.create_task(never.wait())
    with pytest.raises(OSError, match="broken"):
        await until_one_ends(watch(), fail(), theirs)
    assert ended.is_set()
    assert not theirs.done()
    never.set()
    await theirs
    await until_one_ends(theirs)


class TestTraffic:
    """Held and running requests, over all gateways."""

    def board(self) -> Board:
        board = Board()
        spec = {"engine": {"type": "simulated"}}
        board.apply(WRITER.envelope(ModelDeclared(model="echo", uid="u", revision=1, generation=1, spec=spec)), 0)
        return board

    def beat(self, board: Board, gateway: str, *, boot: str = "1", leaving: bool = False) -> None:
        board.apply(WRITER.envelope(GatewayBeat(gateway=gateway, boot=boot, leaving=leaving)), 1)

    def window(self, board: Board, gateway: str, running: int, waiting: int, age: float = 0.5) -> None:
        data = RequestWindow(
            model="echo", uid="u", revision=1, gateway=gateway, started_at=NOW - age - 1, ended_at=NOW - age,
            now=Levels(running=running, waiting=waiting),
        )  # fmt: skip
        board.apply(WRITER.envelope(data), 2)

    def levels(self, board: Board, own: Load | None = None) -> list[tuple[int, int]]:
        traffic = AllTraffic(lambda: board, At(), None if own is None else FakeTraffic([own]), "own")
        return [(one.running, one.held) for one in traffic.statuses()]

    def test_without_a_gateway_nothing_is_known(self) -> None:
        """Also not after one beat: a window may still be on its way."""
        board = self.board()
        assert self.levels(board) == []
        self.beat(board, "a")
        assert self.levels(board) == []

    def test_gateways_that_live_are_summed(self) -> None:
        """Silence of a gateway that lives is zero; old windows count no more."""
        board = self.board()
        for gateway in ("a", "b", "c"):
            self.beat(board, gateway)
            self.beat(board, gateway)
        assert self.levels(board) == [(0, 0)]
        self.window(board, "a", 2, 3)
        self.window(board, "b", 1, 0)
        self.window(board, "c", 7, 7, age=60.0)
        assert self.levels(board) == [(3, 3)]

    def test_our_own_counts_now(self) -> None:
        """Its own windows, which are older, are not added."""
        board = self.board()
        assert self.levels(board, Load("echo", 5, 1)) == [(5, 1)]
        for gateway in ("own", "a"):
            self.beat(board, gateway)
            self.beat(board, gateway)
        self.window(board, "own", 9, 9)
        self.window(board, "a", 2, 3)
        assert self.levels(board, Load("echo", 5, 1)) == [(7, 4)]

    def test_who_leaves_or_starts_anew(self) -> None:
        """Leaving ends it at once; another start is another gateway until it was heard twice."""
        board = self.board()
        for _ in range(2):
            self.beat(board, "a")
        assert board.gateways_alive(Instant(NOW), 5.0) == {"a"}
        self.beat(board, "a", boot="2")
        assert board.gateways_alive(Instant(NOW), 5.0) == set()
        self.beat(board, "a", boot="2")
        assert board.gateways_alive(Instant(NOW), 5.0) == {"a"}
        assert board.gateways_alive(Instant(NOW + 6), 5.0) == set()
        self.beat(board, "a", boot="2", leaving=True)
        assert board.gateways_alive(Instant(NOW), 5.0) == set()


async def test_logs_are_elsewhere() -> None:
    """421, with where to ask."""
    with pytest.raises(ProblemError) as refused:
        await LogsElsewhere().tail("echo-r1-0", 10)
    assert (refused.value.problem.status, "--admin" in refused.value.problem.remedy) == (421, True)
    with pytest.raises(ProblemError):
        LogsElsewhere().follow("echo-r1-0", 10)


def test_whose_folder_is_whose(tmp_path: Path) -> None:
    """All parts run on one machine with the same settings."""
    settings = load_settings({"data_dir": str(tmp_path)})
    assert {role: folder_of(role, settings) for role in Role} == {
        Role.ALL: tmp_path, Role.CLUSTER: tmp_path, Role.GATEWAY: tmp_path / "gateway",
        Role.AUTOSCALER: tmp_path / "autoscaler", Role.AGENT: tmp_path / "agent",
    }  # fmt: skip


def test_a_cluster_on_kubernetes_is_known_by_its_folder(tmp_path: Path) -> None:
    """The same when it comes back; while another has the folder it does without. One on a machine takes it later."""
    settings = load_settings({"data_dir": str(tmp_path), "cluster": "kubernetes", "node_name": "pod-1"})
    held = hold_folder(Role.CLUSTER, settings)
    assert held is not None
    assert hold_folder(Role.CLUSTER, settings) is None
    name = known_as(settings, "boot-1", held)
    held.close()
    again = hold_folder(Role.CLUSTER, settings)
    assert again is not None
    assert known_as(settings, "boot-2", again) == name
    assert known_as(settings, "boot-3", None) == "boot-3"
    again.close()
    assert hold_folder(Role.CLUSTER, load_settings({"data_dir": str(tmp_path)})) is None


async def test_a_folder_is_waited_for(tmp_path: Path) -> None:
    """However its holder ends, the kernel wakes who waits."""
    hold = "import sys, time; from pathlib import Path; from deploy.local.folder import open_folder\n"
    hold += f"open_folder(Path({str(tmp_path)!r})); print('held', flush=True); time.sleep(600)"
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", hold, cwd=ROOT, stdout=pipe)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(asyncio.to_thread(wait_for_folder, tmp_path))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    holder.kill()
    folder = await asyncio.wait_for(waiting, 20)
    folder.close()
    await holder.wait()


async def test_a_cluster_that_waits_for_its_folder(tmp_path: Path) -> None:
    """It says so, has no numbers but zeros, knows no replica, and can be stopped."""
    clock = SystemClock()

    async def never() -> DataFolder:
        await asyncio.Event().wait()
        return open_folder(tmp_path)

    async with MemoryEventLog(clock) as log:
        part = ClusterPart(log, clock, never, ClusterHow("me", LocalSettings(), Seconds(0.0)))
        behind = InBackground(part)
        await behind.start()
        await asyncio.sleep(0)
        assert list(part.missing()) == ["stands by: another relume has the data folder"]
        assert not any(reading.value for reading in part.read())
        assert await part.tail("echo-r1-0", 5) is None
        assert [line async for line in part.follow("echo-r1-0", 5)] == []
        await behind.stop(Seconds(0.0))
