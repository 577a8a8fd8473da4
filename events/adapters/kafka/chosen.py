"""The client's thread of a subscription whose reader chooses its partitions, and chooses anew while it reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from events.adapters.kafka.client import LONGEST_WAIT, Admin, make_consumer
from events.adapters.kafka.follower import BATCH, CLOSING, ROOM, Delivery, Follower, Plan
from events.adapters.kafka.opening import Opener
from events.adapters.kafka.places import spans, starts, topic_places
from events.adapters.kafka.scan import Scan
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.store import Place
from events.log import EventLogError, LogClosed, Start
from events.units import Instant

TURN: Final = 50
"""Milliseconds of one poll: so long may a partition that is added or dropped wait. A record ends the poll at once."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Partitions come, with their start, or go (`start` None)."""

    partitions: tuple[int, ...]
    start: Start | None


class ChosenFollower(Follower):
    """See `Follower`. `add` and `drop` are called by the loop; what comes of them is delivered in their order."""

    def __init__(
        self, settings: KafkaSettings, admin: Admin, plan: Plan, opener: Opener,
        deliver: Callable[[Follower, Delivery], None],
    ) -> None:  # fmt: skip
        super().__init__(settings, admin, plan, opener, deliver)
        self._wanted: deque[_Change] = deque()
        self._look_at = self._clock.now()
        self._told_first = False

    def add(self, start: Start) -> None:
        """Follow its partitions too."""
        self._change(_Change(start.partitions or (), start))

    def drop(self, partitions: Collection[int]) -> None:
        """Follow these no longer; a delivery that says `revoked` answers each call."""
        self._change(_Change(tuple(partitions), None))

    def _change(self, change: _Change) -> None:
        with self._changed:
            self._wanted.append(change)
            self._changed.notify_all()

    # The thread.

    def _session(self) -> None:
        consumer = make_consumer(self._settings, self._plan.existing)
        try:
            self._assign(consumer)
            if not self._told_first:
                self._told_first = True
                self._begin_scans(self._places, self._plan.start)
                self._send(Delivery(assigned=tuple(self._places)))
            while not self._stopping.is_set():
                self._take_changes(consumer)
                if not self._places:
                    self._idle()
                elif self._board(consumer):
                    break
                elif self._room(ROOM):
                    self._handle(consumer, consumer.poll(timeout_ms=TURN, max_records=BATCH))
        finally:
            consumer.close(autocommit=False, timeout_ms=CLOSING)

    def _interrupted(self) -> bool:
        return bool(self._wanted) or super()._interrupted()

    def _idle(self) -> None:
        """Nothing is followed: wait for something to change."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._stopping.is_set(), LONGEST_WAIT)

    def _take_changes(self, consumer: KafkaConsumer) -> None:
        """What fails in the client's hands is done in the next session: then it is known what should be."""
        while self._wanted and self._clock.now() >= self._look_at:
            change = self._wanted[0]
            if change.start is not None and not self._take_up(change.partitions, change.start):
                self._look_at = Instant(self._clock.now() + LONGEST_WAIT)
                return
            self._wanted.popleft()
            if change.start is None:
                self._let_go(change.partitions)
            self._assign(consumer)

    def _take_up(self, partitions: tuple[int, ...], start: Start) -> bool:
        """Follow these too; False when the brokers do not say now where they begin and end."""
        every = topic_places(self._plan.topics, self._plan.partitions)
        places = [place for place in every if place[1] in partitions and place not in self._places]

        def look(client: KafkaAdminClient) -> tuple[dict[Place, tuple[int, int]], dict[Place, int]]:
            found = spans(client, places)
            return found, starts(client, found, start)

        try:
            found, at = self._admin.submit(look, self._settings.request_timeout).result()
        except LogClosed:
            raise
        except EventLogError:
            return False
        for place, (begin, end) in found.items():
            self._begins[place], self._ends[place], self._positions[place] = begin, end, at[place]
        self._places = [*self._places, *places]
        self._begin_scans(places, start)
        self._told_caught_up = False
        self._send(Delivery(assigned=tuple(places)))
        return True

    def _let_go(self, partitions: tuple[int, ...]) -> None:
        for place in [place for place in self._places if place[1] in partitions]:
            self._positions.pop(place, None)
            self._scans.pop(place, None)
        self._places = [place for place in self._places if place[1] not in partitions]
        self._send(Delivery(revoked=tuple((topic, one) for topic in self._plan.topics for one in partitions)))

    def _assign(self, consumer: KafkaConsumer) -> None:
        """Let the consumer have our places; those that stay keep what was fetched of them."""
        held = consumer.assignment() or set()
        consumer.assign([TopicPartition(*place) for place in self._places])
        for place in self._places:
            if TopicPartition(*place) not in held:
                consumer.seek(TopicPartition(*place), self._positions[place])

    def _begin_scans(self, places: Sequence[Place], start: Start) -> None:
        if start.at == "newest_per_key":
            self._scans.update({place: Scan() for place in places})
