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

`KafkaConsumer.topics` waits without a bound, and for ever once the client's task that asks for the partitions has
ended (an error in it that is not Kafka's own ends it, and nothing begins it anew). So `subscribe` waits itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import (
    IllegalStateError,
    InvalidSessionTimeoutError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import MemberState

from events.clock import SystemClock
from events.units import Seconds

logger = logging.getLogger(__name__)

PATIENCE: Final = 500
"""Milliseconds of one poll while `joining`. An assignment that comes between two polls is thrown away, and the member
joins anew: that is rare when polls are long. (A poll ends late by as much when no records follow the assignment.)"""


KNOWN_WITHIN: Final = Seconds(15.0)
"""Seconds in which the brokers must tell the partitions; then the client is thrown away. Chosen: several times what a
busy broker takes."""

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


@contextmanager
def if_still_ours() -> Iterator[None]:
    """Around what asks or tells a member's client of its partitions: its IO thread takes them away as soon as a
    rebalance ends, also between our look at them and this. That is no trouble of the log; the next turn looks anew."""
    with suppress(IllegalStateError, KeyError):  # it checks, and then looks
        yield


def subscribe(
    consumer: KafkaConsumer, topics: Collection[str], expected: Container[str], listener: ConsumerRebalanceListener,
    within: Seconds = KNOWN_WITHIN,
) -> None:  # fmt: skip
    """Become a member with the next poll. Raises KafkaError when the brokers do not tell the partitions of those topics
    that are expected to exist within so many seconds."""
    consumer.subscribe(list(topics), listener=listener)
    client, cluster = consumer._manager, consumer._cluster  # noqa: SLF001 - public waits have no bound
    clock = SystemClock()
    ends_at = clock.now() + within
    missing = {topic for topic in topics if topic in expected}
    asked = cluster.request_update()  # after subscribing: the coordinator looks at the answer
    while missing or not asked.is_done:
        if (left := ends_at - clock.now()) <= 0:
            raise KafkaTimeoutError(f"the brokers do not tell the partitions of {', '.join(sorted(missing or topics))}")
        with suppress(KafkaTimeoutError, LeaderNotAvailableError, UnknownTopicOrPartitionError):
            client.run(client.wait_for, asked, left * 1000)
        missing = {topic for topic in missing if not cluster.partitions_for_topic(topic)}
        asked = cluster.request_update() if missing else asked


def joining(consumer: KafkaConsumer) -> bool:
    """Whether the next poll joins. Ask before each, in the thread that polls."""
    coordinator = consumer._coordinator  # noqa: SLF001 - kafka-python has no public way to say that a join is wanted
    if consumer.group_metadata().state == MemberState.REBALANCING:
        coordinator.request_rejoin()  # until it has ended, which takes this back
    return bool(coordinator.need_rejoin())
