"""What others write to the topics of relume: garbage, strays, other modes. Followers see what is sound, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from kafka import KafkaProducer

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.opening import STALE
from events.adapters.kafka.tender import GROUP
from events.clock import SystemClock
from events.codec import MAX_EVENT_BYTES, encode_structured, to_binary
from events.dead_letters import dead_letters
from events.envelope import AnyEnvelope
from events.log import Start
from events.names import Topic
from events.partitions import partition_of
from events.types.letters import EventRejected
from events.units import Instant
from tests.support.events import Teller
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS, Collector, kafka_log, quick_settings

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

PHASES, GATEWAYS = str(Topic.PHASES), str(Topic.GATEWAYS)


@pytest.fixture
async def log(broker: Broker) -> AsyncIterator[KafkaEventLog]:
    async with kafka_log(broker) as log:
        await tending(log)
        yield log


async def tending(log: KafkaEventLog) -> None:
    """Wait until the log's own group has begun: what others write from now on is tended."""
    async with asyncio.timeout(30):
        while not log.tends:  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.05)


class Foreigner:
    """A plain producer."""

    def __init__(self, broker: Broker) -> None:
        self._producer = KafkaProducer(bootstrap_servers=broker.address, max_request_size=4 << 20)

    def send(self, topic: str, value: bytes | None, **how: object) -> int:
        """The offset."""
        offset: int = self._producer.send(topic, value, **how).get(20).offset
        return offset

    def event(self, event: AnyEnvelope, topic: str = PHASES, **how: object) -> int:
        """In binary mode."""
        raw = to_binary(event)
        return self.send(topic, raw.data, **({"key": raw.key, "headers": list(raw.headers)} | how))

    def close(self) -> None:
        self._producer.close(5)


@pytest.fixture
def foreigner(broker: Broker, log: KafkaEventLog) -> Iterator[Foreigner]:
    """After the log, which makes the topics."""
    found = Foreigner(broker)
    yield found
    found.close()


@pytest.fixture
def tell() -> Teller:
    return Teller(SystemClock(), "acme")


async def letters(log: KafkaEventLog, count: int) -> list[EventRejected]:
    """The dead letters, once there are `count`."""
    async with asyncio.timeout(30):
        while len(found := [record.envelope.data async for record in dead_letters(log)]) < count:  # noqa: ASYNC110 - it is written by another task
            await asyncio.sleep(0.1)
    return found


async def test_both_modes_are_read(log: KafkaEventLog, foreigner: Foreigner, tell: Teller) -> None:
    """Binary with a murmur2 partitioner, and structured JSON with a key."""
    follower = Collector(log.subscribe([PHASES], Start("end")))
    await follower.caught_up.wait()
    binary, structured = tell.drained(), tell.drained()
    foreigner.event(binary)
    headers = [("content-type", b"application/cloudevents+json")]
    foreigner.send(PHASES, encode_structured(structured), key=b"model/m", headers=headers)
    await follower.until({binary.id, structured.id})
    assert [record.envelope.data for record in follower.records] == [binary.data, structured.data]
    await follower.close()


async def test_garbage_stalls_nobody(log: KafkaEventLog, foreigner: Foreigner, tell: Teller) -> None:
    """What nobody can read becomes a dead letter with its place and reason; a newer type, a tombstone do not; what
    comes after all of it arrives."""
    follower = Collector(log.subscribe([PHASES], Start("end")))
    await follower.caught_up.wait()
    big = encode_structured(tell.drained()).replace(b'"replica":"r"', b'"replica":"' + b"r" * MAX_EVENT_BYTES + b'"')
    wrong = [
        foreigner.send(PHASES, b"\xff\x00garbage", key=b"k", partition=0),
        foreigner.send(PHASES, b"{}", key=None, partition=0),
        foreigner.send(PHASES, big, partition=0),
        foreigner.event(tell.beat(), topic=PHASES, partition=0),  # belongs elsewhere
        foreigner.event(tell.drained(), partition=0, headers=[("ce_specversion", b"1.0"), ("ce_type", b"\xff")]),
    ]
    foreigner.send(PHASES, encode_structured(tell.drained()).replace(b"drained.v1", b"drained.v9"), partition=0)
    foreigner.send(PHASES, None, key=b"model/m", partition=0)
    good = tell.drained()
    foreigner.event(good)
    await follower.until({good.id})
    found = await letters(log, len(wrong))
    assert [(one.topic, one.partition, one.offset) for one in found] == [(PHASES, 0, offset) for offset in wrong]
    for one, reason in zip(
        found, ("must be JSON", "specversion", "the most is", "belongs on topic", "ce_type"), strict=True
    ):
        assert reason in one.reason
    assert follower.ids == [good.id]
    assert (log.stats().rejected, log.stats().ignored) == (len(wrong), 1)
    await follower.close()


async def test_strays_are_put_right(log: KafkaEventLog, foreigner: Foreigner, tell: Teller) -> None:
    """Another partitioner, another key, no key: each event is delivered once, with its id, in the right partition."""
    follower = Collector(log.subscribe([PHASES], Start("end")))
    await follower.caught_up.wait()
    right = partition_of("model/m", 3)
    events = [tell.drained() for _ in range(4)]
    foreigner.event(events[0], partition=(right + 1) % 3)
    foreigner.event(events[1], key=b"something else", partition=(right + 2) % 3)
    foreigner.event(events[2], key=None, partition=(right + 1) % 3)
    foreigner.event(events[3])
    await follower.until({event.id for event in events})
    assert {record.position.partition for record in follower.records} == {right}
    assert {record.envelope.key for record in follower.records} == {"model/m"}
    assert (len(follower.ids), log.stats().strays) == (4, 3)
    async with asyncio.timeout(20):
        while sum((await log.lag(GROUP)).values()):  # noqa: ASYNC110 - committed in time: no restart does it again
            await asyncio.sleep(0.2)
    await follower.close()


async def test_a_state_under_another_key_does_not_hide_the_newest(
    log: KafkaEventLog, foreigner: Foreigner, tell: Teller
) -> None:
    """Garbage under the key of a state stands in front of it; who starts from the newest values gets the state."""
    await log.append([tell.beat("g", boot="one"), tell.beat("h", boot="two")])
    place = partition_of("gateway/g", 3)
    foreigner.send(GATEWAYS, b"garbage", key=b"gateway/g", partition=place)
    follower = Collector(log.subscribe([GATEWAYS], Start("newest_per_key")))
    await follower.caught_up.wait()
    assert sorted(record.envelope.data.boot for record in follower.records) == ["one", "two"]
    await follower.close()


async def test_what_was_sent_twice_is_delivered_once(log: KafkaEventLog, foreigner: Foreigner, tell: Teller) -> None:
    """By (source, id), however the repetition came about; also to who reads it all later."""
    follower = Collector(log.subscribe([PHASES], Start("end")))
    await follower.caught_up.wait()
    twice, last = tell.drained(), tell.drained()
    for event in (twice, twice, last):
        foreigner.event(event)
    await follower.until({last.id})
    assert follower.ids == [twice.id, last.id]
    again = Collector(log.subscribe([PHASES], Start("beginning")))
    await again.until({last.id})
    assert again.ids == [twice.id, last.id]
    assert log.stats().repeated == 2
    await follower.close()
    await again.close()


async def test_strays_of_long_ago_are_left_alone(broker: Broker, tell: Teller) -> None:
    """Demand that strayed while nobody tended is not the demand of now; it is counted."""

    class LateClock:
        def __init__(self) -> None:
            self._clock = SystemClock()

        def now(self) -> Instant:
            return Instant(self._clock.now() + STALE + 60)

        async def sleep_until(self, instant: Instant) -> None:
            await self._clock.sleep_until(Instant(instant - STALE - 60))

    async with KafkaEventLog(quick_settings(broker), LateClock()) as log:
        await tending(log)
        foreigner = Foreigner(broker)
        follower = Collector(log.subscribe([PHASES], Start("end")))
        await follower.caught_up.wait()
        foreigner.event(tell.drained(), partition=(partition_of("model/m", 3) + 1) % 3)
        async with asyncio.timeout(20):
            while not log.stats().stale:  # noqa: ASYNC110 - counted by another thread
                await asyncio.sleep(0.05)
        assert (follower.ids, log.stats().strays) == ([], 0)
        await follower.close()
        foreigner.close()


async def test_producers_clocks_do_not_count(log: KafkaEventLog, foreigner: Foreigner, tell: Teller) -> None:
    """A record's place in time is the broker's, whatever its producer's clock says."""
    follower = Collector(log.subscribe([PHASES], Start("end")))
    await follower.caught_up.wait()
    now = SystemClock().now()
    events = [tell.drained() for _ in range(3)]
    for event, skew in zip(events, (-86_400, 86_400, 0), strict=True):
        foreigner.event(event, timestamp_ms=round((now + skew) * 1000))
    await follower.until({event.id for event in events})
    assert all(abs(record.appended_at - now) < 60 for record in follower.records)
    await follower.close()
