"""The contract of subscriptions that choose their partitions, and of keys that name theirs, over every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.memory import MemoryEventLog
from events.adapters.sqlite import SqliteEventLog, SqliteSettings
from events.clock import SystemClock
from events.log import EventLog, Query, Record, Start, Subscription
from events.names import Topic
from events.partitions import partition_of
from events.types.decisions import OwnershipTaken
from events.units import Instant, Seconds
from tests.support.events import PATIENCE, Teller, collect, next_batch, until_assigned
from tests.support.kafka_broker import shared_broker
from tests.support.kafka_logs import wipe

GATEWAYS, PHASES = str(Topic.GATEWAYS), str(Topic.PHASES)
PARTITIONS = 4
KAFKA = pytest.param("kafka", marks=[pytest.mark.needs("kafka"), pytest.mark.slow])


@pytest.fixture
def tell() -> Teller:
    return Teller(SystemClock())


@pytest.fixture(params=["memory", "sqlite", KAFKA])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    """A log with four partitions a topic."""
    clock = SystemClock()
    async with AsyncExitStack() as opened:
        if request.param == "memory":
            yield await opened.enter_async_context(MemoryEventLog(clock, PARTITIONS))
        elif request.param == "sqlite":
            settings = SqliteSettings(partitions=PARTITIONS)
            yield await opened.enter_async_context(SqliteEventLog(tmp_path / "log.db", clock, settings))
        else:
            broker = shared_broker()
            await asyncio.to_thread(wipe, broker)
            quick = KafkaSettings(
                (broker.address,), partitions=PARTITIONS, session_timeout=Seconds(2.0), heartbeat=Seconds(0.3)
            )
            yield await opened.enter_async_context(KafkaEventLog(quick, clock))


def in_partition(records: list[Record], *partitions: int) -> list[str]:
    """The keys of records, which must stand in these partitions."""
    assert {record.position.partition for record in records} <= set(partitions)
    return [record.envelope.key for record in records]


def keys_of(partition: int, count: int) -> list[str]:
    """Names of gateways whose key belongs to this partition."""
    names = (f"g{number}" for number in range(10_000))
    return [name for name in names if partition_of(f"gateway/{name}", PARTITIONS) == partition][:count]


async def test_partitions_come_and_go_while_others_are_read(log: EventLog, tell: Teller) -> None:
    """Each partition has its own start; what was dropped gives nothing more; one that comes again begins anew."""
    zero, one = keys_of(0, 2), keys_of(1, 2)
    await log.append([tell.beat(name) for name in (*zero, *zero, *one)])
    reading = log.subscribe([GATEWAYS], Start(partitions=()))
    reading.add(Start("newest_per_key", partitions=(0,)))
    past = await _until(reading, {(GATEWAYS, 0)})
    assert in_partition(past, 0) == [f"gateway/{name}" for name in zero]
    reading.add(Start("beginning", partitions=(1,)))
    found = await _until(reading, {(GATEWAYS, 1)})
    assert [key for key in in_partition(found, 0, 1) if key.removeprefix("gateway/") in one]
    await log.append([tell.beat(name) for name in (zero[0], one[0])])
    assert sorted(in_partition(await collect(reading, 2), 0, 1)) == sorted(f"gateway/{n}" for n in (zero[0], one[0]))
    reading.drop((0,))
    await log.append([tell.beat(name) for name in (zero[1], one[1])])
    assert in_partition(await collect(reading, 1), 1) == [f"gateway/{one[1]}"]
    reading.add(Start("newest_per_key", partitions=(0,)))
    again = await _until(reading, {(GATEWAYS, 0)})
    assert in_partition(again, 0) == [f"gateway/{name}" for name in zero]
    await reading.close()


async def _until(reading: Subscription, assigned: set[tuple[str, int]]) -> list[Record]:
    """All records from the batch on that tells of these until all of their past has come."""
    records: list[Record] = []
    seen = False
    async with asyncio.timeout(PATIENCE):
        async for batch in reading:
            seen = seen or assigned <= set(batch.assigned)
            records += batch.records
            if seen and batch.caught_up:
                return records
    raise AssertionError("the subscription ended")


async def test_dropped_and_added_in_one_breath(log: EventLog, tell: Teller) -> None:
    """Nothing of the first time comes in the second: the partition begins where the second start says."""
    (name,) = keys_of(2, 1)
    reading = log.subscribe([GATEWAYS], Start(partitions=(2,)))
    await log.append([tell.beat(name) for _ in range(50)])
    for _ in range(5):
        reading.drop((2,))
        reading.add(Start("newest_per_key", partitions=(2,)))
    records = await _until(reading, {(GATEWAYS, 2)})
    assert [record.envelope.id for record in records] == ["e50"]
    await reading.close()


async def test_a_start_in_the_past_of_one_partition(log: EventLog, tell: Teller) -> None:
    """By time, also of several topics; a partition that does not exist gives nothing."""
    await log.append([tell.drained(f"m{number}") for number in range(20)])
    records = [record async for record in log.read(Query(PHASES, 3))]
    middle = records[len(records) // 2].appended_at
    reading = log.subscribe([PHASES, GATEWAYS], Start(partitions=()))
    reading.add(Start("time", Instant(middle), (3, 99)))
    found = await _until(reading, {(PHASES, 3), (GATEWAYS, 3)})
    assert [one.position for one in found] == [one.position for one in records if one.appended_at >= middle]
    await reading.close()


async def test_only_chosen_partitions_change(log: EventLog) -> None:
    """A subscription to everything, or one of a group, is what it was."""
    for subscription in (log.subscribe([PHASES], Start()), log.subscribe([PHASES], Start(partitions=(0,)), "g")):
        with pytest.raises(ValueError, match="chosen partitions"):
            subscription.add(Start(partitions=(1,)))
        with pytest.raises(ValueError, match="chosen partitions"):
            subscription.drop((0,))
        await subscription.close()


async def test_a_group_over_one_partition_has_one_holder(log: EventLog) -> None:
    """The first one keeps it while others join; when it leaves, one of them has it. Who has none hears that too."""
    start = Start(partitions=(0,))
    one = log.subscribe([GATEWAYS], start, "leaders")
    assert await until_assigned(one) == {(GATEWAYS, 0)}
    two = log.subscribe([GATEWAYS], start, "leaders")
    batch = await next_batch(two)
    assert (batch.caught_up, batch.assigned) == (True, ())
    await one.close()
    assert await until_assigned(two) == {(GATEWAYS, 0)}
    await two.close()


async def test_ownership_stands_in_the_partition_that_it_names(log: EventLog, tell: Teller) -> None:
    """Its offset is an epoch of that partition."""
    taken = [tell.writer.envelope(OwnershipTaken(partition=number, owner="a")) for number in range(PARTITIONS)]
    positions = await log.append(taken)
    assert [position.partition for position in positions] == list(range(PARTITIONS))
    for number, event in enumerate(taken):
        assert [record.envelope.id async for record in log.read(Query(Topic.DECISIONS, number))] == [event.id]
