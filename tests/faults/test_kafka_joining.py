"""Joining a group: a member whose polls are short takes up every assignment that it deals, and deals no more often than
it must. (kafka-python 3.0.12 by itself does neither: see `events.adapters.kafka.joining`.)"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.structs import MemberState

from events.adapters.kafka.client import make_member, make_worker
from events.adapters.kafka.joining import joining, subscribe
from tests.support.kafka_broker import shared_broker
from tests.support.kafka_logs import quick_settings, wipe

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow]

WITHIN = 30.0


class Silent(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Told of everything, does nothing."""

    def on_partitions_assigned(self, assigned: object) -> None:
        pass

    def on_partitions_revoked(self, revoked: object) -> None:
        pass


def poll_until(consumer: KafkaConsumer, true: Callable[[], bool]) -> None:
    """Polls that end at once, as those of a member that has records to hand over."""
    ends_at = time.monotonic() + WITHIN  # noqa: TID251 - the time of a real broker
    while not true():
        assert time.monotonic() < ends_at, consumer.group_metadata()  # noqa: TID251 - as above
        joining(consumer)
        consumer.poll(timeout_ms=1)


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_what_is_dealt_is_taken_up(kind: str) -> None:
    """At the start once and no more; and anew when partitions were added, which the leader alone finds out."""
    broker, topic = shared_broker(), f"joined-{kind}"
    wipe(broker)
    settings = quick_settings(broker)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.wait_for_topics([topic])
    consumer = make_worker(settings, "joiners", "one") if kind == "eager" else make_member(settings, "joiners", None)
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
