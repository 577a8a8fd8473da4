"""The contract of `events.log.EventLog`, over every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.memory import MemoryEventLog
from events.adapters.sqlite import SqliteEventLog, SqliteSettings
from events.clock import Clock
from events.codec import BinaryEvent, Ignored, Rejected, Unencodable, encode_structured
from events.dead_letters import dead_letters
from events.envelope import AnyEnvelope, Envelope
from events.log import EventLog, LogClosed, LogStats, Position, Query, Record, Start
from events.names import Topic
from events.partitions import partition_of
from events.types.letters import EventRejected
from events.units import Seconds
from tests.support.events import (
    PATIENCE,
    Teller,
    collect,
    ids,
    next_batch,
    until_assigned,
    until_caught_up,
    until_revoked,
)
from tests.support.kafka_broker import shared_broker
from tests.support.kafka_logs import wipe
from tests.support.log_clocks import BrokersClock, SteppedClock

PHASES, GATEWAYS = str(Topic.PHASES), str(Topic.GATEWAYS)


class Log(EventLog, Protocol):
    """What every adapter has besides the port."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def append_raw(self, topic: str, raw: BinaryEvent) -> Position | Ignored | Rejected: ...
    def stats(self) -> LogStats: ...


Factory = Callable[..., Awaitable[Log]]
KAFKA = pytest.param("kafka", marks=[pytest.mark.needs("kafka"), pytest.mark.slow])


@pytest.fixture(params=["memory", "sqlite", KAFKA])
def adapter(request: pytest.FixtureRequest) -> str:
    """Which log is tried; an adapter takes part by one more name here."""
    name: str = request.param
    return name


@pytest.fixture
def clock(adapter: str) -> SteppedClock:
    return BrokersClock() if adapter == "kafka" else SteppedClock()


@pytest.fixture
async def logs(adapter: str, tmp_path: Path, clock: SteppedClock) -> AsyncIterator[Factory]:
    """Opens logs, each with its own storage."""
    opened: list[Log] = []

    async def make(partitions: int = 1, buffer: int = 4096) -> Log:
        log: Log
        if adapter == "memory":
            log = MemoryEventLog(clock, partitions, subscriber_bound=buffer)
        elif adapter == "kafka":
            assert not opened, "the topics are the log: there is one at a time"
            broker = shared_broker()
            await asyncio.to_thread(wipe, broker)
            quick = KafkaSettings(
                (broker.address,), partitions=partitions, subscriber_bound=buffer,
                session_timeout=Seconds(2.0), heartbeat=Seconds(0.3),
            )  # fmt: skip
            log = KafkaEventLog(quick, clock)
        else:
            settings = SqliteSettings(partitions=partitions, subscriber_bound=buffer)
            log = SqliteEventLog(tmp_path / f"{len(opened)}.db", clock, settings)
        await log.open()
        opened.append(log)
        return log

    yield make
    for log in opened:
        await log.close()


@pytest.fixture
async def log(logs: Factory) -> Log:
    return await logs()


@pytest.fixture
def tell(clock: Clock) -> Teller:
    return Teller(clock)


async def read(log: Log, query: Query) -> list[Record]:
    return [record async for record in log.read(query)]


async def test_append_then_read_gives_the_same_events_in_order(log: Log, tell: Teller) -> None:
    """What was appended is read back equal, oldest first, at the positions that append returned."""
    events = [tell.drained(replica=f"r{n}") for n in range(5)]
    positions = await log.append(events[:2]) + await log.append(events[2:])
    records = await read(log, Query(PHASES))
    assert [record.envelope for record in records] == events
    assert tuple(record.position for record in records) == positions
    assert [position.offset for position in positions] == sorted({position.offset for position in positions})


async def test_append_of_nothing_and_of_many_topics(log: Log, tell: Teller) -> None:
    """An empty append is nothing; one append may write to several topics, each event to its home topic."""
    assert await log.append([]) == ()
    positions = await log.append([tell.drained(), tell.beat()])
    assert [position.topic for position in positions] == [PHASES, GATEWAYS]
    assert len(await read(log, Query(GATEWAYS))) == 1


async def test_same_id_is_written_once(log: Log, tell: Teller) -> None:
    """The same (source, id), in one append or in a later one, keeps its first position and is delivered once."""
    event, other = tell.drained(), tell.drained()
    subscription = log.subscribe([PHASES], Start("end"))
    first, again = await log.append([event, event])
    assert first == again
    assert await log.append([event, other]) != (first, first)
    assert (await log.append([event]))[0] == first
    assert ids(await collect(subscription, 2)) == ["e1", "e2"]
    assert len(await read(log, Query(PHASES))) == 2
    assert log.stats().duplicates == 3
    await subscription.close()


async def test_same_id_of_another_source_is_another_event(log: Log) -> None:
    """Ids are unique within their source only."""
    await log.append([Teller(source="relume/a").drained(), Teller(source="relume/b").drained()])
    assert len(await read(log, Query(PHASES))) == 2


async def test_append_of_what_is_no_event_writes_nothing(log: Log, tell: Teller) -> None:
    """A value that is no registered event is the caller's fault, and all of the append is left out."""
    strange: AnyEnvelope = Envelope(id="x", source="s", subject="s", key="k", time=tell.drained().time, data=object())
    with pytest.raises(Unencodable, match="not an event type"):
        await log.append([tell.drained(), strange])
    assert await read(log, Query(PHASES)) == []


async def test_offers_are_delivered_in_order(log: Log, tell: Teller) -> None:
    """Offered events reach subscribers and the log in the order of the offers."""
    subscription = log.subscribe([PHASES], Start("end"))
    assert all(log.offer(tell.drained()) for _ in range(300))
    assert ids(await collect(subscription, 300)) == [f"e{n}" for n in range(1, 301)]
    assert len(await read(log, Query(PHASES))) == 300
    async with asyncio.timeout(PATIENCE):
        while log.stats().queue_depth:  # noqa: ASYNC110 - readers may hear of an event before its writer does
            await asyncio.sleep(0.01)
    assert (log.stats().offered, log.stats().dropped, log.stats().appended) == (300, 0, 300)
    await subscription.close()


async def test_subscribers_get_what_was_appended(log: Log, tell: Teller, adapter: str) -> None:
    """The envelope delivered equals the one given; in one process it is that object, and nothing is decoded again."""
    subscription = log.subscribe([PHASES], Start("end"))
    await until_caught_up(subscription)
    event = tell.drained()
    await log.append([event])
    delivered = (await collect(subscription, 1))[0].envelope
    assert delivered is event if adapter != "kafka" else delivered == event
    await subscription.close()


async def test_every_subscriber_gets_everything(log: Log, tell: Teller) -> None:
    """Without a group, subscriptions are independent of one another."""
    subscriptions = [log.subscribe([PHASES, GATEWAYS], Start("end")) for _ in range(3)]
    await log.append([tell.drained(), tell.beat(), tell.drained()])
    for subscription in subscriptions:
        assert sorted(ids(await collect(subscription, 3))) == ["e1", "e2", "e3"]
        await subscription.close()


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", ["e1", "e2", "e3", "e4"]),
        ("end", []),
        ("newest_per_key", ["e3", "e4"]),
        ("time", ["e3", "e4"]),
    ],
)
async def test_starts(
    log: Log, tell: Teller, clock: SteppedClock, start: Literal["beginning", "end", "newest_per_key", "time"],
    expected: list[str],
) -> None:  # fmt: skip
    """Each start delivers its part of the past, then says that it has caught up, then all that follows."""
    moments = []
    for gateway in ("a", "b", "a", "b"):
        await clock.tick()
        moments.append(clock.now())
        await log.append([tell.beat(gateway)])
    subscription = log.subscribe([GATEWAYS], Start(start, moments[2] if start == "time" else None))
    await log.append([tell.beat("c")])
    past = await until_caught_up(subscription)
    assert ids(past)[: len(expected)] == expected
    follow = past[len(expected) :] or await collect(subscription, 1)
    assert ids(follow) == ["e5"]
    await log.append([tell.beat("a")])
    assert ids(await collect(subscription, 1)) == ["e6"]
    await subscription.close()


async def test_time_start_without_time_is_refused(log: Log) -> None:
    """A start by time needs one."""
    with pytest.raises(ValueError, match="needs a time"):
        log.subscribe([GATEWAYS], Start("time"))


async def test_caught_up_of_an_empty_log(log: Log) -> None:
    """A follower of nothing hears at once that there is nothing."""
    subscription = log.subscribe([GATEWAYS], Start("newest_per_key"))
    assert await until_caught_up(subscription) == []
    await subscription.close()


async def test_read_queries(logs: Factory, clock: SteppedClock) -> None:
    """Offset, time, newest of each key, partition and limit select what they say."""
    log, tell = await logs(partitions=3), Teller(clock)
    moments = []
    for number in range(12):
        await clock.tick()
        moments.append(clock.now())
        await log.append([tell.beat(f"g{number % 4}")])
    everything = await read(log, Query(GATEWAYS))
    assert sorted(ids(everything)) == sorted(f"e{n}" for n in range(1, 13))
    for partition in range(3):
        part = await read(log, Query(GATEWAYS, partition))
        assert all(partition_of(record.envelope.key, 3) == record.position.partition == partition for record in part)
        if len(part) > 1:
            second = part[1].position.offset
            assert await read(log, Query(GATEWAYS, partition, from_offset=second)) == part[1:]
            assert await read(log, Query(GATEWAYS, partition, limit=1)) == part[:1]
    recent = await read(log, Query(GATEWAYS, from_time=moments[10]))
    assert sorted(ids(recent)) == ["e11", "e12"]
    newest = await read(log, Query(GATEWAYS, newest_per_key=True))
    assert sorted(ids(newest)) == ["e10", "e11", "e12", "e9"]
    assert await read(log, Query(GATEWAYS, limit=0)) == []
    assert await read(log, Query("relume.nothing")) == []


async def test_long_reads_and_slow_subscribers_lose_nothing(logs: Factory, tell: Teller) -> None:
    """A subscriber that falls behind its bound goes on from the store: every appended record once, in order."""
    log = await logs(buffer=50)
    subscription = log.subscribe([PHASES], Start("end"))
    await until_caught_up(subscription)
    expected = [f"e{n}" for n in range(1, 1501)]
    for _ in range(15):
        await log.append([tell.drained() for _ in range(100)])
    assert ids(await collect(subscription, 1500)) == expected
    await log.append([tell.drained()])
    assert ids(await collect(subscription, 1)) == ["e1501"]
    assert ids(await read(log, Query(PHASES))) == [*expected, "e1501"]
    await subscription.close()


async def test_reading_while_writing_loses_and_repeats_nothing(logs: Factory, tell: Teller) -> None:
    """A follower that starts in the past while others append sees each record once, in the order of its partition."""
    log = await logs(partitions=2, buffer=20)
    written = 600

    async def write() -> None:
        for number in range(written // 3):
            await log.append([tell.beat(f"g{number % 7}") for _ in range(3)])

    writing = asyncio.create_task(write())
    await log.append([tell.beat("first")])
    subscription = log.subscribe([GATEWAYS], Start("beginning"))
    records = await collect(subscription, written + 1)
    await writing
    assert len(set(ids(records))) == len(records) == written + 1
    for partition in range(2):
        offsets = [record.position.offset for record in records if record.position.partition == partition]
        assert offsets == sorted(offsets)
    await subscription.close()


async def test_time_of_append_never_goes_back(log: Log, tell: Teller, clock: SteppedClock) -> None:
    """The clock may be stepped back; the log's time in a partition is not, and goes on when the clock is past it."""
    await log.append([tell.drained()])
    clock.step(-3600)
    await log.append([tell.drained()])
    clock.step(+3600)
    await clock.tick()
    await log.append([tell.drained()])
    first, second, third = await read(log, Query(PHASES))
    assert first.appended_at <= second.appended_at < third.appended_at
    assert second.appended_at - first.appended_at < PATIENCE


async def test_group_members_share_the_partitions(logs: Factory, tell: Teller) -> None:
    """Two members of a group get each record once between them; assigned and revoked partitions are told."""
    log = await logs(partitions=4)
    one = log.subscribe([GATEWAYS], Start("beginning"), "workers")
    assert len(await until_assigned(one)) == 4
    two = log.subscribe([GATEWAYS], Start("beginning"), "workers")
    revoked = await until_revoked(one)
    assert len(revoked) == 2
    assert await until_assigned(two) == revoked
    await log.append([tell.beat(f"g{n}") for n in range(40)])
    all_seen = asyncio.Event()
    seen = {id(one): list[Record](), id(two): list[Record]()}

    async def drain(member: object) -> None:
        async for batch in one if member is one else two:
            seen[id(member)].extend(batch.records)
            if sum(map(len, seen.values())) == 40:
                all_seen.set()

    tasks = [asyncio.create_task(drain(member)) for member in (one, two)]
    async with asyncio.timeout(PATIENCE):
        await all_seen.wait()
    mine, theirs = ({r.position.partition for r in seen[id(member)]} for member in (one, two))
    assert not mine & theirs
    assert sorted(ids([*seen[id(one)], *seen[id(two)]])) == sorted(f"e{n}" for n in range(1, 41))
    await one.close()
    await two.close()
    await asyncio.gather(*tasks)


async def test_group_goes_on_at_its_commits(log: Log, tell: Teller) -> None:
    """What was committed is not delivered again; what was not, is; `lag` says how much is left."""
    await log.append([tell.drained() for _ in range(5)])
    member = log.subscribe([PHASES], Start("beginning"), "workers")
    records = await collect(member, 5)
    assert await log.lag("workers") == {}
    await member.commit([records[1].position])
    await member.commit([records[0].position])  # never moves back
    assert await log.lag("workers") == {(PHASES, 0): 3}
    await member.close()
    successor = log.subscribe([PHASES], Start("end"), "workers")
    assert ids(await collect(successor, 3)) == ["e3", "e4", "e5"]
    await successor.commit([records[4].position])
    assert await log.lag("workers") == {(PHASES, 0): 0}
    assert await log.lag("strangers") == {}
    await successor.close()


async def test_takeover_after_uncommitted_work(logs: Factory, tell: Teller) -> None:
    """When a member leaves, another gets what it had not committed, also for a group that began at the end."""
    log = await logs(partitions=2)
    one = log.subscribe([GATEWAYS], Start("end"), "workers")
    await until_assigned(one)
    await log.append([tell.beat(f"g{n}") for n in range(10)])
    assert len(await collect(one, 10)) == 10
    two = log.subscribe([GATEWAYS], Start("end"), "workers")
    await one.close()
    assert len(set(ids(await collect(two, 10)))) == 10
    await two.close()


async def test_commits_of_revoked_partitions_do_not_count(logs: Factory, tell: Teller) -> None:
    """A member that lost a partition can no longer move the group's offset there."""
    log = await logs(partitions=2)
    one = log.subscribe([GATEWAYS], Start("beginning"), "workers")
    await log.append([tell.beat(f"g{n}") for n in range(10)])
    records = await collect(one, 10)
    two = log.subscribe([GATEWAYS], Start("beginning"), "workers")
    ((_, gone),) = await until_revoked(one)
    await one.commit([record.position for record in records])
    assert [partition for _, partition in await log.lag("workers")] == [1 - gone]
    await one.close()
    await two.close()


async def test_commit_without_group_is_refused(log: Log) -> None:
    """Only groups have offsets."""
    subscription = log.subscribe([PHASES], Start("end"))
    with pytest.raises(ValueError, match="group"):
        await subscription.commit([])
    await subscription.close()


async def test_close_ends_the_iteration(log: Log) -> None:
    """A closed subscription ends a waiting iteration, and so does closing the log."""
    one, two = log.subscribe([PHASES], Start("end")), log.subscribe([PHASES], Start("end"))

    for subscription in (one, two):
        await until_caught_up(subscription)

    async def drain(subscription: object) -> int:
        return len([batch async for batch in (one if subscription is one else two)])

    tasks = [asyncio.create_task(drain(subscription)) for subscription in (one, two)]
    await asyncio.sleep(0.05)
    await one.close()
    await log.close()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*tasks) == [0, 0]


async def test_a_closed_log_says_so(log: Log, tell: Teller) -> None:
    """After close every call raises LogClosed, and an offer is refused and counted."""
    await log.close()
    with pytest.raises(LogClosed):
        await log.append([tell.drained()])
    with pytest.raises(LogClosed):
        log.subscribe([PHASES], Start("end"))
    with pytest.raises(LogClosed):
        await log.lag("g")
    with pytest.raises(LogClosed):
        await read(log, Query(PHASES))
    assert log.offer(tell.drained()) is False
    assert log.stats().dropped == 1
    await log.close()


async def test_cancelled_wait_loses_nothing(log: Log, tell: Teller) -> None:
    """A subscriber whose wait was cancelled goes on where it was."""
    subscription = log.subscribe([PHASES], Start("end"))
    await until_caught_up(subscription)
    for _ in range(20):
        waiting = asyncio.create_task(next_batch(subscription))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await log.append([tell.drained()])
    assert ids(await collect(subscription, 1)) == ["e1"]
    await subscription.close()


async def test_foreign_records(log: Log, tell: Teller) -> None:
    """A foreign CloudEvent is appended under the key that its data asks for; the same one again is the same event."""
    event = tell.drained("llama")
    raw = encode_structured(event).replace(b'"partitionkey":"model/llama",', b"").replace(b"relume/test", b"acme")
    taken = await log.append_raw(PHASES, BinaryEvent((), b"", raw))
    assert isinstance(taken, Position)
    assert await log.append_raw(PHASES, BinaryEvent((), b"", raw)) == taken
    (record,) = await read(log, Query(PHASES))
    assert (record.envelope.key, record.envelope.source, record.envelope.data) == ("model/llama", "acme", event.data)


async def test_broken_foreign_records_become_dead_letters(log: Log, tell: Teller) -> None:
    """A record that nobody can use is told of in the dead letters, once, with the reason and what it said."""
    wrong = encode_structured(tell.drained()).replace(b'"replica":"r"', b'"replica":7')
    for _ in range(2):
        found = await log.append_raw(PHASES, BinaryEvent((), b"", wrong))
        assert isinstance(found, Rejected)
        assert found.reason == "data.replica: Input should be a valid string, got 7"
    elsewhere = await log.append_raw(GATEWAYS, BinaryEvent((), b"", encode_structured(tell.drained())))
    assert isinstance(elsewhere, Rejected)
    assert "belongs on topic relume.phases" in elsewhere.reason
    assert isinstance(await log.append_raw(PHASES, BinaryEvent((), b"", b"\xff{")), Rejected)
    letters = [record.envelope.data async for record in dead_letters(log)]
    assert all(isinstance(data, EventRejected) for data in letters)
    assert [(data.topic, data.source) for data in letters] == [(PHASES, "relume/test"), (GATEWAYS, "relume/test"),
                                                               (PHASES, "")]  # fmt: skip
    assert letters[2].raw == "\\xff{"
    assert [data.topic async for data in _topics(log)] == [PHASES, PHASES]
    assert log.stats().rejected == 4


async def _topics(log: Log) -> AsyncIterator[EventRejected]:
    async for record in dead_letters(log, topic=PHASES):
        yield record.envelope.data


async def test_newer_foreign_records_are_ignored_and_counted(log: Log, tell: Teller) -> None:
    """An event of ours that this release does not know is no error."""
    newer = encode_structured(tell.drained()).replace(b"drained.v1", b"drained.v2")
    assert isinstance(await log.append_raw(PHASES, BinaryEvent((), b"", newer)), Ignored)
    assert (log.stats().ignored, log.stats().rejected) == (1, 0)
    assert [record async for record in dead_letters(log)] == []
