"""Joining a group so that the assignment is not lost: what kafka-python 3.0.12 leaves to chance.

The leader of a group joins anew when the partitions that it knows of are not those that it dealt. kafka-python does not
note down that it wants to: it compares. The comparison comes out equal as soon as the leader has dealt again, which is
in the middle of that join. If the poll that began the join ends before that, the next one finds nothing to wait for,
and the assignment, which comes a moment later, is taken up by nobody. The member then stands in "rebalancing" for ever:
no heartbeats (so the brokers drop it when its session ends), no records, and a poll that spins. (The Java client noted
nothing down either, until KAFKA-9815.)

It happens to nearly every member that starts and whose polls are short: the first assignment may be dealt before the
first news of the partitions is looked at. So `subscribe` waits for them, and `joining` sees to it that a join that has
begun is waited for whatever it was begun for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import InvalidSessionTimeoutError, KafkaTimeoutError
from kafka.structs import MemberState

from events.units import Seconds

logger = logging.getLogger(__name__)

PATIENCE: Final = 500
"""Milliseconds of one poll while `joining`. An assignment that comes between two polls is thrown away, and the member
joins anew: that is rare when polls are long. (A poll ends late by as much when no records follow the assignment.)"""


LONGEST_SESSION: Final = Seconds(60.0)
"""Seconds; more is asked of no broker. (Kafka's own default is 45.)"""


class Session:
    """After how many seconds of silence a member is dead: as wanted, or twice as much each time the brokers refuse."""

    def __init__(self, wanted: Seconds) -> None:
        self.seconds = wanted

    @contextmanager
    def asked(self, group: str) -> Iterator[None]:
        """Around a membership, which is to be begun anew if it ends so: the brokers would not have the session. Raises
        InvalidSessionTimeoutError when they would not have the longest either."""
        try:
            yield
        except InvalidSessionTimeoutError:
            if self.seconds >= LONGEST_SESSION:
                raise
            refused, self.seconds = self.seconds, Seconds(min(LONGEST_SESSION, 2 * self.seconds))
            logger.info(
                "the brokers refuse a session of %g s in group %s (group.min.session.timeout.ms); %g s are asked for",
                refused, group, self.seconds,
            )  # fmt: skip


def subscribe(
    consumer: KafkaConsumer, topics: Collection[str], expected: Container[str], listener: ConsumerRebalanceListener
) -> None:
    """Become a member with the next poll. Raises KafkaError when the brokers do not tell the partitions of one of those
    topics that are expected to exist."""
    consumer.subscribe(list(topics), listener=listener)
    consumer.topics()  # asked of the brokers, after subscribing: the coordinator looks at the answer
    for topic in topics:
        if topic in expected and not consumer.partitions_for_topic(topic):
            raise KafkaTimeoutError(f"the brokers do not tell the partitions of {topic}")


def joining(consumer: KafkaConsumer) -> bool:
    """Whether the next poll joins. Ask before each, in the thread that polls."""
    coordinator = consumer._coordinator  # noqa: SLF001 - kafka-python has no public way to say that a join is wanted
    if consumer.group_metadata().state == MemberState.REBALANCING:
        coordinator.request_rejoin()  # until it has ended, which takes this back
    return bool(coordinator.need_rejoin())
