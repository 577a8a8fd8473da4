"""Members of a group without relume around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer

from events.adapters.kafka.joining import joining, subscribe

WITHIN: Final = 60.0
"""Seconds until a test gives up: the machine may be busy."""


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


def join(consumer: KafkaConsumer, topics: Collection[str], count: int) -> None:
    """Become a member that has so many partitions. It is never polled again, but its client has a thread that beats."""
    subscribe(consumer, topics, topics, Silent())
    poll_until(consumer, lambda: len(consumer.assignment()) == count)
