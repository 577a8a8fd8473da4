"""Nothing of the Kafka log's own waits: no poll beside records, no question with a record in hand, no reading twice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from kafka import TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.future import Future

from events.adapters.kafka import opening, past, wire
from events.adapters.kafka.client import make_consumer, make_producer
from events.adapters.kafka.fetching import PromptFetcher
from events.adapters.kafka.follower import Follower
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.subscription import KafkaSubscription
from events.clock import SystemClock
from events.log import Start
from events.names import Topic
from events.partitions import partition_of
from tests.support.events import PATIENCE, Teller
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import LEAKS, Collector, collect_leaks, kafka_log, quick_settings, wipe

REAL = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]
GATEWAYS, MODELS, PHASES, METRICS = map(str, (Topic.GATEWAYS, Topic.MODELS, Topic.PHASES, Topic.METRICS))


@pytest.mark.parametrize(("kind", "waits"), [(Fetcher, True), (PromptFetcher, False)])
@pytest.mark.parametrize("lies", ["_completed_fetches", "_next_partition_records"])
def test_no_poll_waits_beside_records(kind: type[Fetcher], lies: str, *, waits: bool) -> None:
    """An answer came after the poll took what there was, or a partition has more than a poll may give: nothing is sent
    for without that partition, and the poll looks again at once. (The plain fetcher sends, and waits for that. Once it
    does not, ours has nothing left to do.)"""
    fetcher = object.__new__(kind)
    fetcher._completed_fetches, fetcher._next_partition_records, fetcher._fetch_futures = deque(), None, deque()
    setattr(fetcher, lies, deque(["records"]))
    sent: list[str] = []

    def ask() -> dict[str, object]:
        sent.append("a fetch that a broker may hold back for half a second")
        return {}

    fetcher._create_fetch_requests = ask
    _finish(fetcher._send_fetches_async())
    wakes = any(future.is_done for future in fetcher._fetch_futures)
    assert (bool(sent), not wakes) == (waits, waits)
    setattr(fetcher, lies, None if lies.startswith("_next") else deque())
    fetcher._fetch_futures.append(Future())
    _finish(fetcher._send_fetches_async())
    assert len(sent) == 1 + waits, "with nothing in hand it sends"
    assert not any(future.is_done for future in fetcher._fetch_futures), "or polls would spin"


def _finish(steps: Awaitable[object]) -> None:
    """Run what never waits."""
    turns = steps.__await__()
    with pytest.raises(StopIteration):
        next(turns)


@pytest.fixture
async def broker() -> Broker:
    """An empty one that runs."""
    broker = shared_broker()
    broker.revive()
    await asyncio.to_thread(wipe, broker)
    return broker


@pytest.fixture
async def log(broker: Broker) -> AsyncIterator[KafkaEventLog]:
    async with kafka_log(broker, tend=False) as log:
        yield log
    collect_leaks()


class TestTopics:
    """Clients on a broker that has the topics: their leaders are in its first answer."""

    pytestmark = REAL

    async def test_no_question_is_asked_with_a_record_in_hand(
        self, log: KafkaEventLog, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first record of a topic is sent, and read, without asking for the topic. (Clients that were told of none
        ask: kafka-python may ask again only 100 ms after it asked last.)"""
        settings, told = quick_settings(broker), (PHASES, MODELS)
        assert await asyncio.to_thread(_questions, settings, told, monkeypatch) == 0
        assert await asyncio.to_thread(_questions, settings, (), monkeypatch) > 0


def _questions(settings: KafkaSettings, told: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the brokers were asked for topics from the making of both clients to the reading of two records."""
    asked: list[ClusterMetadata] = []
    producer, consumer = make_producer(settings, told), make_consumer(settings, told)
    refresh = ClusterMetadata.request_update
    with monkeypatch.context() as patches:
        patches.setattr(ClusterMetadata, "request_update", lambda one: asked.append(one) or refresh(one))
        at = {topic: producer.send(topic, b"{}", b"k", partition=0).get(PATIENCE).offset for topic in (PHASES, MODELS)}
        consumer.assign([TopicPartition(topic, 0) for topic in at])
        for topic, offset in at.items():
            consumer.seek(TopicPartition(topic, 0), offset)
        read: set[str] = set()
        while read != set(at):
            read |= {place.topic for place in consumer.poll(1000)}
    producer.close()
    consumer.close()
    return len(asked)


class TestRiding:
    """Several subscriptions of a process on a real broker."""

    pytestmark = REAL

    async def test_each_record_is_read_once(self, log: KafkaEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever how many subscriptions follow it, states and news mixed or not, once they have read the past."""
        tell, read = Teller(SystemClock()), []
        await log.append([tell.beat("old")])
        readers = [
            Collector(log.subscribe(topics, Start("newest_per_key")))
            for topics in ([GATEWAYS], [GATEWAYS, MODELS], [GATEWAYS, PHASES], [PHASES, METRICS])
        ]
        await riding(log)

        def counted(raw: wire.RawRecord, partitions: int) -> wire.Finding:
            read.append(raw.offset)
            return wire.find(raw, partitions)

        monkeypatch.setattr(past, "find", counted)
        monkeypatch.setattr(opening, "find", counted)
        told = [[tell.beat(f"g{number % 3}"), tell.drained(f"m{number % 3}")] for number in range(30)]
        for events in told:
            await log.append(events)
        beats, news = ([pair[index].id for pair in told] for index in (0, 1))
        for reader, wanted in zip(readers, [beats, beats, beats + news, news], strict=True):
            await reader.until(set(wanted))
            assert sorted(one for one in reader.ids if one != "e1") == sorted(wanted)
        assert len(read) == 60
        for reader in readers:
            await reader.close()

    async def test_who_falls_behind_reads_alone_and_comes_back(self, broker: Broker) -> None:
        """Nothing is lost or told twice; the other one does not wait for it."""
        async with kafka_log(broker, tend=False, subscriber_bound=20) as log:
            tell = Teller(SystemClock())
            slow = log.subscribe([PHASES], Start("end"))
            async for batch in slow:
                if batch.caught_up:
                    break
            quick = Collector(log.subscribe([PHASES], Start("end")))
            await riding(log)
            told = [tell.drained(f"m{number % 3}") for number in range(100)]
            for one in told[:60]:
                await log.append([one])
            await quick.until({one.id for one in told[:60]})
            await until(lambda: not all(follower.carried for follower in followers(log)))
            behind = Collector(slow)
            await riding(log)
            await log.append(told[60:])
            for reader in (quick, behind):
                await reader.until({one.id for one in told})
                assert sorted(reader.ids) == sorted(one.id for one in told)
                await reader.close()

    async def test_partitions_change_while_riding(self, log: KafkaEventLog) -> None:
        """What is added is read from its start, what is dropped gives nothing more, and the rest goes on."""
        tell = Teller(SystemClock())
        zero, one = (next(n for n in map(str, range(99)) if partition_of(f"gateway/{n}", 3) == at) for at in (0, 1))
        await log.append([tell.beat(one)])
        subscription = log.subscribe([GATEWAYS], Start("end", partitions=(0,)))
        reader = Collector(subscription)
        await riding(log)
        await log.append([tell.beat(zero)])
        await reader.until({"e2"})
        subscription.add(Start("beginning", partitions=(1,)))
        await reader.until({"e1"})
        await riding(log)
        await log.append([tell.beat(zero), tell.beat(one)])
        await reader.until({"e3", "e4"})
        subscription.drop((0,))
        await log.append([tell.beat(zero), tell.beat(one)])
        await reader.until({"e6"})
        assert sorted(reader.ids) == ["e1", "e2", "e3", "e4", "e6"]
        await reader.close()

    async def test_the_broker_dies_under_the_riders(self, log: KafkaEventLog, broker: Broker) -> None:
        """All go on where they were, and hear each event once."""
        tell = Teller(SystemClock())
        readers = [Collector(log.subscribe([PHASES, GATEWAYS], Start("end"))) for _ in range(2)]
        await riding(log)
        before = [tell.drained(f"m{number}") for number in range(20)]
        await log.append(before)
        broker.kill()
        await asyncio.to_thread(broker.start)
        after = [tell.drained(f"m{number}") for number in range(20)]
        await log.append(after)
        for reader in readers:
            await reader.until({one.id for one in (*before, *after)})
            assert sorted(reader.ids) == sorted(one.id for one in (*before, *after))
            await reader.close()


async def riding(log: KafkaEventLog) -> None:
    """Wait until all subscriptions are carried."""
    await until(lambda: all(follower.carried for follower in followers(log)))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - it becomes true in another thread
            await asyncio.sleep(0.02)


def followers(log: KafkaEventLog) -> list[Follower]:
    found: set[KafkaSubscription] = log._subscriptions
    return [follower for subscription in found for follower in subscription._followers]
