"""The SQLite log under faults: sudden death, full disk, damage, floods, slow readers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from events.adapters.sqlite import SqliteEventLog, SqliteSettings
from events.clock import SimulatedClock
from events.codec import Unencodable
from events.dead_letters import dead_letters
from events.envelope import AnyEnvelope
from events.log import (
    EventLogError,
    LogCorrupt,
    LogInUse,
    LogUnavailable,
    Query,
    Record,
    Retention,
    Start,
)
from events.names import Topic
from events.types.requests import RequestWindow
from events.units import Seconds
from tests.support.events import PATIENCE, Teller, collect, ids, next_batch, until_caught_up

PHASES, GATEWAYS = str(Topic.PHASES), str(Topic.GATEWAYS)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def tell(clock: SimulatedClock) -> Teller:
    return Teller(clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "events.db"


@pytest.fixture
async def log(path: Path, clock: SimulatedClock) -> AsyncIterator[SqliteEventLog]:
    async with SqliteEventLog(path, clock) as opened:
        yield opened


async def read(log: SqliteEventLog, topic: str = PHASES) -> list[Record]:
    return [record async for record in log.read(Query(topic))]


async def holds(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; other threads work meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 -- what changes is a counter, which has nothing to wait on
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_killed_at_any_moment_it_keeps_what_it_acknowledged(path: Path) -> None:
    """22 times a process that appends is killed with SIGKILL: each acknowledged event is there once, in order."""
    acknowledged: list[str] = []
    chance = random.Random(7)
    for round_number in range(22):
        acknowledged += await _append_until_killed(
            path, f"r{round_number}", chance.randint(1, 120), chance.random() * 0.02
        )
    async with SqliteEventLog(path, SimulatedClock()) as log:
        stored = [record.envelope.data.replica for record in await read(log)]
    counts = Counter(stored)
    assert len(acknowledged) > 500
    assert max(counts.values()) == 1
    assert not set(acknowledged) - set(stored)
    _assert_in_order(stored)


async def _append_until_killed(path: Path, name: str, lines: int, longer: float) -> list[str]:
    """What a child process had acknowledged when it was killed, after `lines` and `longer` seconds."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.append_forever", str(path), name, cwd=ROOT, stdout=PIPE
    )
    assert child.stdout is not None
    said = b""
    for _ in range(lines):
        said += await child.stdout.readline()
    await asyncio.sleep(longer)
    child.kill()
    said += await child.stdout.read()
    await child.wait()
    return said.decode().split("\n")[:-1]  # what follows the last line break was cut off


def _assert_in_order(stored: list[str]) -> None:
    """Each task's numbers count up without a gap."""
    seen: dict[str, int] = {}
    for name in stored:
        task, _, number = name.rpartition(".")
        assert int(number) == seen.get(task, -1) + 1
        seen[task] = int(number)


async def test_reopened_it_goes_on(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """Offsets go on, commits stand, the same id is known again, time does not go back."""
    async with SqliteEventLog(path, clock) as log:
        first = tell.drained()
        (position,) = await log.append([first])
        member = log.subscribe([PHASES], Start("beginning"), "workers")
        await member.commit([record.position for record in await collect(member, 1)])
    earlier = SimulatedClock(500.0)
    async with SqliteEventLog(path, earlier) as log:
        assert await log.append([first]) == (position,)
        (later,) = await log.append([tell.drained()])
        assert later.offset > position.offset
        one, two = await read(log)
        assert one.appended_at <= two.appended_at
        member = log.subscribe([PHASES], Start("beginning"), "workers")
        assert ids(await collect(member, 1)) == ["e2"]


async def test_closing_writes_what_waits(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """Offers that were taken before close are in the file after it, and the WAL is empty."""
    log = SqliteEventLog(path, clock)
    await log.open()
    for _ in range(3000):
        assert log.offer(tell.drained())
    await log.close()
    assert log.stats().dropped == 0
    assert not path.with_name(path.name + "-wal").exists()
    async with SqliteEventLog(path, clock) as again:
        assert len(await read(again)) == 3000


async def test_a_second_log_on_the_same_file_is_refused(log: SqliteEventLog, path: Path, clock: SimulatedClock) -> None:
    """The refusal names the process that has it."""
    with pytest.raises(LogInUse, match=rf"in use by process {os.getpid()}\b"):
        await SqliteEventLog(path, clock).open()


async def test_flood_of_offers_is_bounded(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """10,000 offers at once against a bound of 1,000: the rest is refused and counted; what was taken stands."""
    async with SqliteEventLog(path, clock, SqliteSettings(offer_bound=1000)) as log:
        taken = sum(log.offer(tell.drained()) for _ in range(10_000))
        assert taken == 1000
        assert (log.stats().offered, log.stats().dropped, log.stats().queue_depth) == (1000, 9000, 1000)
        await holds(lambda: log.stats().queue_depth == 0)
        assert ids(await read(log)) == [f"e{n}" for n in range(1, 1001)]
        assert log.offer(tell.drained())


def request_window(tell: Teller, model: str, *, edge: bool) -> AnyEnvelope:
    """A gateway's window of one second."""
    data = RequestWindow(model=model, uid="u", revision=1, gateway="g", started_at=1.0, ended_at=2.0, edge=edge)
    return tell.writer.envelope(data)


async def test_edges_overtake_what_waits_but_not_their_own_model(
    path: Path, clock: SimulatedClock, tell: Teller
) -> None:
    """Somebody who waits does not wait for the windows of others; a model's windows keep their order."""
    async with SqliteEventLog(path, clock) as log:
        for number in range(900):
            assert log.offer(request_window(tell, f"m{number}", edge=False))
        own, other = (request_window(tell, model, edge=True) for model in ("m899", "sleeper"))
        assert log.offer(own)
        assert log.offer(other)
        await holds(lambda: log.stats().queue_depth == 0)
        order = ids(await read(log, str(Topic.REQUESTS)))
        assert order.index(other.id) < 800
        assert order[-1] == own.id
        assert len(order) == 902


async def test_a_log_that_is_behind_refuses_ordinary_windows(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """They are merged by whoever tells them; edges and other news are still taken."""
    async with SqliteEventLog(path, clock, SqliteSettings(window_bound=50)) as log:
        taken = sum(log.offer(request_window(tell, f"m{number}", edge=False)) for number in range(80))
        assert (taken, log.stats().put_off, log.stats().dropped) == (50, 30, 0)
        assert log.offer(request_window(tell, "sleeper", edge=True))
        assert log.offer(tell.drained())
        await holds(lambda: log.stats().queue_depth == 0)
        assert log.offer(request_window(tell, "m1", edge=False))


async def test_appends_overtake_offers_and_are_bounded(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """A decision does not wait behind a flood of news; more appended events than the bound are refused."""
    async with SqliteEventLog(path, clock, SqliteSettings(append_bound=10)) as log:
        for _ in range(5000):
            log.offer(tell.drained())
        await log.append([tell.beat()])
        assert log.stats().queue_depth > 0, "the append was durable before the offers"
        with pytest.raises(LogUnavailable, match="no more may"):
            await log.append([tell.beat() for _ in range(11)])
        appends = [asyncio.ensure_future(log.append([tell.beat(f"g{n}")])) for n in range(12)]
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert [isinstance(result, LogUnavailable) for result in results] == [False] * 10 + [True] * 2


async def test_full_file(path: Path, clock: SimulatedClock, tell: Teller, caplog: pytest.LogCaptureFixture) -> None:
    """When the file may not grow, appends say so, offers wait and are dropped beyond the bound; space ends it all."""
    settings = SqliteSettings(max_file_bytes=300_000, offer_bound=50, retention=Retention(age=Seconds(1000.0)))
    async with SqliteEventLog(path, clock, settings) as log:
        assert log.trouble == ""
        acknowledged = await _fill(log, tell)
        assert "full" in log.trouble
        taken = [event.id for event in (tell.drained("m" * 500) for _ in range(80)) if log.offer(event)]
        assert len(taken) == 50
        assert log.stats().dropped == 30
        await holds(lambda: log.stats().failures >= 3)  # it tries again by itself
        assert ids(await read(log)) == acknowledged, "what was acknowledged stands, and it can be read"
        assert log.stats().queue_depth == 50
        clock.set(clock.now() + 2000)  # everything may now be forgotten
        await holds(lambda: log.stats().queue_depth == 0)
        await log.append([tell.beat()])
        assert ids(await read(log))[-50:] == taken
        assert log.trouble == ""
    assert [record.levelname for record in caplog.records if "written" in record.message] == ["ERROR", "WARNING"]


async def _fill(log: SqliteEventLog, tell: Teller) -> list[str]:
    """Append until the log is full; the ids of what was acknowledged."""
    acknowledged: list[str] = []
    while True:
        events = [tell.drained("m" * 500) for _ in range(20)]
        try:
            await log.append(events)
        except LogUnavailable as error:
            assert "full" in str(error)  # noqa: PT017 -- the loop ends here
            return acknowledged
        acknowledged += [event.id for event in events]


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from events.adapters.sqlite import SqliteEventLog
from events.clock import SimulatedClock
from events.log import LogUnavailable, Query
from tests.support.events import Teller

async def main(path):
    tell = Teller()
    async with SqliteEventLog(path, SimulatedClock()) as log:
        acknowledged = [(await log.append([event]), event.id)[1] for event in [tell.drained() for _ in range(20)]]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        failures = 0
        for _ in range(5):
            try:
                await log.append([tell.drained("m" * 5000) for _ in range(20)])
            except LogUnavailable:
                failures += 1
        assert failures == 5, failures
        waiting = tell.drained()
        assert log.offer(waiting)
        assert [record.envelope.id async for record in log.read(Query("relume.phases"))] == acknowledged
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        last = tell.drained()
        await log.append([last])
        while log.stats().queue_depth:
            await asyncio.sleep(0.01)
        found = [record.envelope.id async for record in log.read(Query("relume.phases"))]
        assert sorted(found) == sorted([*acknowledged, last.id, waiting.id]), found
    print("recovered", log.stats().failures >= 5)

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_disk_that_takes_no_more_bytes(path: Path) -> None:
    """When writing fails in the system (here by a limit on file sizes), appends say so; later all goes on."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FULL_DISK, str(path), cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(60):
        output, errors = await child.communicate()
    assert (child.returncode, output) == (0, b"recovered True\n"), errors.decode()


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    match damage:
        case "no database":
            path.write_bytes(b"hello, world " * 1000)
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case _:
            path.write_bytes(content[:8192] + b"\xa5" * 16384 + content[24576:])


def _move_away(path: Path) -> None:
    """What the message says to do."""
    path.rename(path.with_name(path.name + ".broken"))


@pytest.mark.parametrize("damage", ["no database", "truncated", "scribbled"])
async def test_damaged_file(path: Path, clock: SimulatedClock, tell: Teller, damage: str) -> None:
    """A damaged file is refused at open with what to do, and nothing is left locked."""
    async with SqliteEventLog(path, clock) as log:
        await log.append([tell.drained(replica="r" * 300) for _ in range(300)])
    _damage(path, damage)
    for _ in range(2):
        with pytest.raises(LogCorrupt, match=r"Move it away .*mv .*events\.db"):
            await SqliteEventLog(path, clock).open()
    _move_away(path)
    async with SqliteEventLog(path, clock) as log:
        assert await read(log) == []


async def test_files_of_others_are_refused(path: Path, clock: SimulatedClock) -> None:
    """Another program's database, another format, another number of partitions: each with its own word."""
    async with SqliteEventLog(path, clock):
        pass
    with pytest.raises(EventLogError, match="has 1 partitions a topic, asked for 3"):
        await SqliteEventLog(path, clock, SqliteSettings(partitions=3)).open()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LogCorrupt, match="has format 99"):
        await SqliteEventLog(path, clock).open()
    other = path.with_name("other.db")
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(LogCorrupt, match="another program"):
        await SqliteEventLog(other, clock).open()


async def test_folder_that_cannot_be_made(tmp_path: Path, clock: SimulatedClock) -> None:
    """A path below a file: not available, with the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LogUnavailable, match="cannot be opened"):
        await SqliteEventLog(tmp_path / "file" / "events.db", clock).open()


async def test_rows_that_cannot_be_read_are_skipped_and_told_of_once(
    path: Path, clock: SimulatedClock, tell: Teller
) -> None:
    """A broken row among good ones: readers get the good ones, people get one dead letter, newer events none."""
    async with SqliteEventLog(path, clock) as log:
        await log.append([tell.drained() for _ in range(4)])
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET event = ? WHERE seq = 1", (b'{"specversion": "1.0"}',))
        connection.execute("UPDATE records SET event = replace(event, '.v1', '.v7') WHERE seq = 2")
    async with SqliteEventLog(path, clock) as log:
        for _ in range(3):
            assert ids(await read(log)) == ["e1", "e4"]
        subscription = log.subscribe([PHASES], Start("beginning"))
        assert ids(await until_caught_up(subscription)) == ["e1", "e4"]
        await holds(lambda: log.stats().queue_depth == 0)
        (letter,) = [record.envelope.data async for record in dead_letters(log)]
        assert (letter.topic, letter.partition, letter.offset) == (PHASES, 0, 1)
        assert letter.reason.startswith("id: Field required")
        assert (log.stats().rejected, log.stats().ignored) == (4, 4)


async def test_slow_subscriber_reads_the_file_instead(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """Of 3,000 appended events none is lost to a subscriber with room for ten; others are not held up."""
    async with SqliteEventLog(path, clock, SqliteSettings(subscriber_bound=10)) as log:
        slow, quick = log.subscribe([PHASES], Start("end")), log.subscribe([PHASES], Start("end"))
        assert (await next_batch(slow)).caught_up
        expected: list[str] = []
        for _ in range(30):
            events = [tell.drained() for _ in range(100)]
            expected += [event.id for event in events]
            await log.append(events)
            await collect(quick, 100)
        assert ids(await collect(slow, 3000)) == expected


async def test_retention_by_age(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """Old news goes, the newest value of each state stays, whatever its age; its history goes."""
    settings = SqliteSettings(retention=Retention(age=Seconds(60.0)), sweep_every=Seconds(0.02))
    async with SqliteEventLog(path, clock, settings) as log:
        await log.append([tell.drained() for _ in range(500)])
        await log.append([tell.beat("a", str(n)) for n in range(300)])
        await log.append([tell.beat("b")])
        clock.set(clock.now() + 61)
        (last,) = await log.append([tell.drained()])
        await _settled(path, 3)
        assert ids(await read(log)) == ["e802"]
        assert ids(await read(log, GATEWAYS)) == ["e800", "e801"]
        newest = [record async for record in log.read(Query(GATEWAYS, newest_per_key=True))]
        assert ids(newest) == ["e800", "e801"]
        clock.set(clock.now() + 61)
        await holds(lambda: log.offer(tell.drained()))
        await _settled(path, 3)
    async with SqliteEventLog(path, clock, settings) as log:
        (position,) = await log.append([tell.drained()])
        assert position.offset > last.offset, "offsets never come again"


async def test_retention_by_bytes(path: Path, clock: SimulatedClock, tell: Teller) -> None:
    """The oldest rows beyond the bytes go; other topics keep theirs."""
    small = Retention(bytes=50_000)
    settings = SqliteSettings(retention_of={PHASES: small}, sweep_every=Seconds(0.02))
    async with SqliteEventLog(path, clock, settings) as log:
        await log.append([tell.beat(f"g{n}") for n in range(300)])
        await log.append([tell.drained() for _ in range(1000)])
        with contextlib.closing(sqlite3.connect(path)) as connection:
            sizes = """
                SELECT (SELECT bytes FROM streams WHERE topic = ?),
                       (SELECT sum(length(event)) FROM records JOIN streams USING (stream) WHERE topic = ?)"""
            await holds(lambda: connection.execute(sizes, (PHASES, PHASES)).fetchone()[0] <= 50_000)
            kept, really = connection.execute(sizes, (PHASES, PHASES)).fetchone()
        assert 40_000 < kept == really
        records = await read(log)
        assert ids(records) == [f"e{n}" for n in range(1301 - len(records), 1301)], "the newest are kept"
        assert len(await read(log, GATEWAYS)) == 300


async def _settled(path: Path, rows: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        await holds(lambda: connection.execute("SELECT count(*) FROM records").fetchone()[0] == rows)


async def test_offers_that_cannot_be_written_are_left_out(log: SqliteEventLog, tell: Teller) -> None:
    """An offered event that is no JSON is counted as rejected; those beside it are written."""
    good, bad = tell.drained(), tell.drained("\ud800")
    large = tell.drained("m" * (1 << 20))
    assert all(log.offer(event) for event in (bad, good, large))
    await holds(lambda: log.stats().queue_depth == 0)
    assert ids(await read(log)) == [good.id]
    assert log.stats().rejected == 2
    for event in (bad, large):
        with pytest.raises(Unencodable):
            await log.append([tell.drained(), event])
    assert len(await read(log)) == 1


async def test_an_appender_that_leaves_harms_nobody(log: SqliteEventLog, tell: Teller) -> None:
    """Cancelled appends are written or not; those beside them are answered."""
    for _ in range(20):
        leaving = asyncio.ensure_future(log.append([tell.drained()]))
        staying = asyncio.ensure_future(log.append([tell.drained()]))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert len(await staying) == 1
    assert log.stats().queue_depth == 0


async def test_a_log_that_is_slow_to_write_is_not_waited_for_for_ever(
    path: Path, clock: SimulatedClock, tell: Teller
) -> None:
    """Another hand holds the file's write lock: the append gives up at its deadline, and works once it is free."""
    async with SqliteEventLog(path, clock, SqliteSettings(append_timeout=Seconds(0.2))) as log:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            event = tell.drained()
            with pytest.raises(LogUnavailable, match="not durable within"):
                await log.append([event])
            connection.execute("ROLLBACK")
        log_again = replace(event)  # the same id: whether or not the first went through, it stands once
        await holds(lambda: log.stats().appended == 1)
        await log.append([log_again])
        assert ids(await read(log)) == [event.id]
