"""Joining a group: a member whose polls are short takes up every assignment that it deals, and deals no more often than
it must. (kafka-python 3.0.12 by itself does neither: see `events.adapters.kafka.joining`.)"""

from __future__ import annotations

import asyncio

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import KafkaTimeoutError
from kafka.structs import MemberState

from events.adapters.kafka.client import Membership, make_member, make_worker
from events.adapters.kafka.joining import joining, subscribe
from events.adapters.kafka.log import KafkaEventLog
from events.clock import SystemClock
from events.log import Start, Subscription
from events.names import Topic
from events.units import Seconds
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_joined import Silent, join, poll_until
from tests.support.kafka_logs import kafka_log, quick_settings, wipe

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow]

WITHIN = 60.0


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_what_is_dealt_is_taken_up(kind: str) -> None:
    """At the start once and no more; and anew when partitions were added, which the leader alone finds out."""
    broker, topic = shared_broker(), f"joined-{kind}"
    wipe(broker)
    settings = quick_settings(broker)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.wait_for_topics([topic])
    how = Membership("joiners", "one", settings.session_timeout)
    consumer = make_worker(settings, how) if kind == "eager" else make_member(settings, how, None)
    try:
        subscribe(consumer, [topic], [topic], Silent())
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        first = consumer.group_metadata()
        consumer.topics()  # news of the partitions come once more, and are what they were
        for _ in range(20):
            assert not joining(consumer)
            consumer.poll(timeout_ms=1)
        assert consumer.group_metadata() == first
        admin.create_partitions({topic: NewPartitions(5)})
        poll_until(consumer, lambda: bool(consumer.topics()) and len(consumer.partitions_for_topic(topic)) == 5)
        poll_until(consumer, lambda: {TopicPartition(topic, at) for at in range(5)} == consumer.assignment())
        assert consumer.group_metadata().state == MemberState.STABLE
        assert not joining(consumer)
    finally:
        consumer.close(autocommit=False)
        admin.close()


def test_a_client_that_asks_no_more_is_given_up() -> None:
    """An error in the client's task that asks for the partitions ends that task for good: joining ends, too, within its
    bound, and says why. (`KafkaConsumer.topics` never returns then.)"""
    broker = shared_broker()
    wipe(broker)
    settings = quick_settings(broker)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic("asked", 1, 1)])
    admin.wait_for_topics(["asked"])
    admin.close()
    consumer = make_member(settings, Membership("askers", "one", settings.session_timeout), None)
    try:
        subscribe(consumer, ["asked"], ["asked"], Silent())
        consumer.unsubscribe()
        consumer._cluster.add_listener(_broken)
        with pytest.raises(KafkaTimeoutError, match="do not tell the partitions of other"):
            subscribe(consumer, ["other"], ["other"], Silent(), within=Seconds(2.0))
        began = SystemClock().now()
        with pytest.raises(KafkaTimeoutError):
            subscribe(consumer, ["asked"], ["other"], Silent(), within=Seconds(0.5))
        assert SystemClock().now() - began < WITHIN
    finally:
        consumer.close(autocommit=False)


def _broken(cluster: object) -> None:
    raise RuntimeError(f"an error of another kind in {type(cluster).__name__}")


async def test_who_has_the_name_of_a_dead_member_owns_at_once(broker: Broker) -> None:
    """Its session lasts for a minute, and its client has a thread that beats: without its name one would wait."""
    named = quick_settings(broker, identity=lambda: "folder")
    how = Membership("owners", f"{named.client_id}/folder", Seconds(60.0))
    async with KafkaEventLog(named, SystemClock()) as log:
        dead = await asyncio.to_thread(make_member, named, how, None)
        await asyncio.to_thread(join, dead, [str(Topic.MODELS)], 3)
        subscription = log.subscribe((Topic.MODELS,), Start("end"), "owners")
        assert await places(subscription, 3, within=15) == {0, 1, 2}
        await subscription.close()
        await asyncio.to_thread(dead.close, autocommit=False, timeout_ms=1000)


async def test_a_session_that_is_too_short_for_the_brokers(broker: Broker) -> None:
    """The test's broker allows a second and no less: twice as much is asked for until it does."""
    async with kafka_log(broker, session_timeout=Seconds(0.4), heartbeat=Seconds(0.1)) as log:
        subscription = log.subscribe((Topic.MODELS,), Start("end"), "hasty")
        worker = log.work((Topic.INFERENCE_REQUESTS,), "hasty-work", "one")
        assert await places(subscription, 3, within=WITHIN) == {0, 1, 2}
        async with asyncio.timeout(WITHIN):
            assert len((await anext(aiter(worker))).assigned) == 3
        await worker.close()
        await subscription.close()


async def places(subscription: Subscription, count: int, within: float) -> set[int]:
    """The partitions that a member is given, once there are so many."""
    held: set[int] = set()
    async with asyncio.timeout(within):
        async for batch in subscription:
            held |= {partition for _, partition in batch.assigned}
            if len(held) == count:
                break
    return held
