"""Work on Kafka shared by members: who is away loses its part, who comes back settles nothing that is another's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError
from kafka.structs import ConsumerGroupMetadata

from events.adapters.kafka.client import Membership, TransactionalProducer, make_transactional, make_worker
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.work_reading import from_text, to_text
from events.clock import SystemClock
from events.units import Seconds
from events.work import Effect, Mark
from tests.contracts.test_work import GROUP, TOPICS, Worker, answer, answers, request
from tests.support.kafka_broker import Broker
from tests.support.kafka_joined import join
from tests.support.kafka_logs import LEAKS, quick_settings

kafka = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


def partitions(worker: Worker) -> dict[str, set[int]]:
    return {topic: {place[1] for place in worker.held if place[0] == topic} for topic in TOPICS}


@pytest.mark.parametrize("mark", [Mark(7), Mark(7, (8,)), Mark(0, (1, 5, 2048)), Mark(1 << 40, ((1 << 40) + 3,))])
def test_a_mark_survives_its_text(mark: Mark) -> None:
    """As metadata of an offset; two thousand of them fit."""
    assert from_text(mark.next_offset, to_text(mark)) == mark
    assert len(to_text(Mark(0, tuple(range(1, 2048))))) < 400
    assert from_text(7, "not ours!") == Mark(7)


@pytest.mark.parametrize("_", [pytest.param(None, marks=kafka)])
async def test_members_share_and_take_over(broker: Broker, _: None) -> None:
    """Partitions of the same number go together; a second member takes some, without the first being stopped in those
    that it keeps; what the first settles of those that it lost is not written."""
    clock = SystemClock()
    async with KafkaEventLog(quick_settings(broker), clock) as one, KafkaEventLog(quick_settings(broker), clock) as two:
        names = [f"m{number}" for number in range(12)]
        await one.append([request(name, name) for name in names])
        first = Worker(one.work(TOPICS, GROUP, "one"))
        await first.until(lambda: len(first.items) == 12)
        before = dict(first.held)
        second = Worker(two.work(TOPICS, GROUP, "two"))
        await second.until(lambda: bool(second.held))
        await first.until(lambda: len(first.held) < 6)
        assert len(partitions(first)[TOPICS[0]]) + len(partitions(second)[TOPICS[0]]) == 3
        for worker in (first, second):
            assert partitions(worker)[TOPICS[0]] == partitions(worker)[TOPICS[1]]
        assert all(before[place] == assigned for place, assigned in first.held.items())
        lost = next(item for item in first.items.values() if item.place not in first.held)
        late = Effect(before[lost.place].term, (answer("late"),), Mark(lost.position.offset + 1))
        assert await first.queue.settle({lost.place: late}) == frozenset()
        kept = next(item for item in first.items.values() if item.place in first.held)
        assert kept.envelope is not None
        assert await first.settle(kept.envelope.id) == {kept.place}
        assert await answers(one) == [kept.envelope.id]
        await first.close()
        await second.until(lambda: len(second.held) == 6)
        assert second.held[kept.place].mark.next_offset == kept.position.offset + 1
        await second.close()


@pytest.mark.parametrize("_", [pytest.param(None, marks=kafka)])
async def test_a_broker_that_dies_in_a_settlement_writes_it_once(broker: Broker, _: None) -> None:
    """Twenty settlements, one after the other, while it is killed and started again: each is written once."""
    async with KafkaEventLog(quick_settings(broker), SystemClock()) as log:
        names = [f"r{number:02}" for number in range(20)]
        await log.append([request(name) for name in names])
        worker = Worker(log.work(TOPICS, GROUP, "one"))
        await worker.until(lambda: len(worker.items) == 20)

        async def settle_all() -> None:
            for name in names:
                while not await worker.settle(name):  # its partition was away for a moment
                    place = worker.items[name].place
                    await worker.until(lambda place=place: place in worker.held)  # type: ignore[misc]  # bound
                    await asyncio.sleep(0.1)

        settling = asyncio.create_task(settle_all())
        await asyncio.sleep(0.3)
        broker.kill()
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(90):
            await settling
        assert sorted(await answers(log)) == names
        await worker.close()


@pytest.mark.parametrize("_", [pytest.param(None, marks=kafka)])
def test_the_end_of_a_transaction_has_a_bound(broker: Broker, _: None) -> None:
    """The broker stands still: the offsets, and the commit, are given up, and a producer of the same name goes on."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic("ended", 1, 1)])
    admin.wait_for_topics(["ended"])
    admin.close()
    settings = quick_settings(broker, append_timeout=Seconds(2.0))

    def begun() -> TransactionalProducer:
        producer = make_transactional(settings, "ended")
        producer.begin_transaction()
        producer.send("ended", b"x").get(60)
        return producer

    offsets = {TopicPartition("ended", 0): OffsetAndMetadata(1, "", -1)}
    for end in (
        lambda producer: producer.commit_transaction(),
        lambda producer: producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("enders", -1, "", None)),
    ):
        producer = begun()
        broker.freeze()
        with pytest.raises(KafkaTimeoutError, match="the brokers did not"):
            end(producer)
        broker.thaw()
        producer._sender.force_close()
        producer.close(timeout=0.5)
    last = begun()
    last.patience = Seconds(60.0)
    last.commit_transaction()
    last.close(timeout=5)


def committed(broker: Broker, topics: Sequence[str]) -> Counter[str]:
    """How many records a reader of committed ones finds in the first partition of each."""
    found: Counter[str] = Counter()
    places = [TopicPartition(topic, 0) for topic in topics]
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address, isolation_level="read_committed", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    ends_at = SystemClock().now() + 60
    while any(consumer.position(place) < ends[place] for place in places):
        assert SystemClock().now() < ends_at, "the topics' ends were not reached"
        for place, records in consumer.poll(200).items():
            found[place.topic] += len(records)
    consumer.close()
    return found


@pytest.mark.parametrize("_", [pytest.param(None, marks=kafka)])
async def test_a_topic_of_others_that_takes_no_copy_stops_nothing(
    broker: Broker, caplog: pytest.LogCaptureFixture, _: None
) -> None:
    """One that is not there, or whose records must be smaller: what is ours is written, and the copy is left out."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    small = NewTopic("shop.small", 1, 1, topic_configs={"max.message.bytes": "100"})
    admin.create_topics([NewTopic("shop.answers", 1, 1), small])
    async with KafkaEventLog(quick_settings(broker), SystemClock()) as log:
        await log.append([request("a"), request("b")])
        worker = Worker(log.work(TOPICS, GROUP, "one"))
        await worker.until(lambda: len(worker.items) == 2)
        topics = ("shop.missing", "shop.answers", "shop.small")
        for name in ("a", "b"):
            place, event = worker.items[name].place, answer(name)
            mark = Mark(worker.items[name].position.offset + 1)
            copies = tuple((topic, event) for topic in topics)
            effect = Effect(worker.held[place].term, (event,), mark, copies)
            async with asyncio.timeout(30):
                assert await worker.queue.settle({place: effect}) == {place}
        assert sorted(await answers(log)) == ["a", "b"]
        await worker.close()
    admin.close()
    assert await asyncio.to_thread(committed, broker, topics[1:]) == {"shop.answers": 2}
    assert "shop.missing" in caplog.text
    assert "shop.small" in caplog.text


@pytest.mark.parametrize("_", [pytest.param(None, marks=kafka)])
async def test_who_has_the_name_of_a_dead_member_goes_on_at_once(broker: Broker, _: None) -> None:
    """Though its session has not ended: the dead one is never polled, but its client has a thread that beats."""
    settings = quick_settings(broker)
    async with KafkaEventLog(settings, SystemClock()) as log:
        await log.append([request("waiting")])
        dead = await asyncio.to_thread(make_worker, settings, Membership(GROUP, f"{GROUP}/one", Seconds(30.0)))
        await asyncio.to_thread(join, dead, TOPICS, 6)
        worker = Worker(log.work(TOPICS, GROUP, "one"))
        async with asyncio.timeout(15):
            await worker.until(lambda: "waiting" in worker.items and len(worker.held) == 6)
        await worker.settle("waiting")
        assert await answers(log) == ["waiting"]
        await worker.close()
        await asyncio.to_thread(dead.close, autocommit=False, timeout_ms=1000)
