"""The client's thread of one subscription: it polls, decodes, and hands over to the loop in batches.

What waits for the loop is bounded: a reader that falls behind stops the polling of its own consumer, nothing else. When
the brokers are away the thread waits for them and goes on where it was. Without a group it reads alone only until it
has all there was; then the process's one reader of the newest records carries it (`trunk`).
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from events.adapters.kafka.client import FIRST_WAIT, LONGEST_WAIT, Admin, make_consumer, told
from events.adapters.kafka.joining import if_still_ours
from events.adapters.kafka.opening import Guarded, Opener
from events.adapters.kafka.past import PAST, Opened
from events.adapters.kafka.places import begin_group, spans, starts, topic_places
from events.adapters.kafka.scan import Scan
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.trunk import Trunk
from events.adapters.kafka.wire import RawRecord
from events.adapters.store import Place
from events.clock import Clock, SystemClock
from events.log import EventLogError, LogClosed, Record, Start
from events.names import TOPIC_KINDS, TopicKind
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

BATCH: Final = 512
"""Most records of one hand-over."""

POLL: Final = 200
"""Milliseconds of one poll; a record that arrives ends it at once. So long may a close wait."""

ROOM: Final = 0.2  # seconds between looks whether the thread should stop, while the loop is behind
CLOSING: Final = 2000  # milliseconds that a consumer has for its farewell
POSITION: Final = 200  # milliseconds to learn a consumer's position

ALONE: Final = Seconds(5.0)
"""For so long who failed reads alone."""

Polled = Mapping[TopicPartition, Sequence[RawRecord]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is followed: `partitions` by topic, from where, in which group."""

    topics: tuple[str, ...]
    partitions: Mapping[str, int]
    start: Start
    group: str | None = None

    def by_kind(self) -> Sequence[tuple[TopicKind | None, Plan]]:
        """Taken apart into states, news and queues, each read by itself: no state waits behind a flood of news. Whole
        (kind None, unless its topics are of one) where the partitions are dealt or chosen."""
        kinds = list(dict.fromkeys(TOPIC_KINDS.get(topic) for topic in self.topics))
        if len(kinds) == 1:
            return [(kinds[0], self)]
        if not kinds or self.group is not None or self.start.partitions is not None:
            return [(None, self)]
        parts = {kind: tuple(topic for topic in self.topics if TOPIC_KINDS.get(topic) is kind) for kind in kinds}
        return [(kind, replace(self, topics=topics)) for kind, topics in parts.items()]

    @property
    def existing(self) -> tuple[str, ...]:
        """Those topics that exist."""
        return tuple(topic for topic in self.topics if topic in self.partitions)

    @property
    def places(self) -> list[Place]:
        """All that is followed at first, or shared out in the group."""
        chosen = self.start.partitions
        return [one for one in topic_places(self.topics, self.partitions) if chosen is None or one[1] in chosen]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the thread hands to the loop; see `events.log.Batch`."""

    records: tuple[Record, ...] = ()
    assigned: tuple[Place, ...] = ()
    revoked: tuple[Place, ...] = ()
    caught_up: bool = False


class Follower(abc.ABC):
    """Started once. `deliver` is called in the thread and raises RuntimeError when nobody listens any more."""

    def __init__(
        self, settings: KafkaSettings, admin: Admin, plan: Plan, opener: Opener,
        deliver: Callable[[Follower, Delivery], None],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._admin = admin
        self._plan = plan
        self._opener: Opener = Guarded(opener)
        self._deliver = deliver
        self._places = plan.places
        self._ends: dict[Place, int] = {}
        self._begins: dict[Place, int] = {}
        self._positions: dict[Place, int] = {}
        self._scans: dict[Place, Scan] = {}
        self._told_caught_up = False
        self._changed = threading.Condition()
        self._outstanding = 0
        self._stopping = threading.Event()
        self._wait = FIRST_WAIT
        self._away = False
        self._clock: Clock = SystemClock()
        self._alone_until = self._clock.now()
        self._aboard = False
        self._listens = True
        self.trunk: Trunk | None = None
        """What carries it once it has all there was; None: nothing does. Set before `start`."""
        self._thread = threading.Thread(target=self._run, name="relume-kafka-follower", daemon=True)
        self.begun: Future[None] = Future()
        """Where the topics ended when this began is known."""
        self.ended: Future[None] = Future()
        for future in (self.begun, self.ended):
            future.set_running_or_notify_cancel()

    # The loop's side.

    def start(self) -> None:
        """Begin, in the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End; see `ended`."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def taken(self, count: int) -> None:
        """The loop has taken so many of the records that were delivered."""
        if count:
            with self._changed:
                self._outstanding -= count
                self._changed.notify_all()

    @property
    def carried(self) -> bool:
        """Whether the trunk reads for it."""
        return self._aboard

    # The thread.

    @abc.abstractmethod
    def _session(self) -> None:
        """Follow with one client until stopped, or carried by the trunk; raises KafkaError or OSError when it fails."""

    def _run(self) -> None:
        try:
            if self._begin():
                while not self._stopping.is_set():
                    self._attempt()
        except RuntimeError as error:  # the loop has been closed before the log
            logger.debug("nobody listens any more: %s", error)
        except LogClosed:
            logger.debug("the log was closed while a subscription began")
        finally:
            if not self.begun.done():
                self.begun.set_result(None)
            self.ended.set_result(None)

    def _attempt(self) -> None:
        try:
            self._session()
            self._ride()
        except (KafkaError, OSError) as error:
            level = logging.DEBUG if self._away else logging.WARNING
            logger.log(level, "following %s is interrupted: %s", self._names(), told(self._settings, error))
            self._away = True
        except (RuntimeError, LogClosed):
            raise
        except Exception:
            # A fault of the client or of ours: a reader that silently ends would leave its role blind for ever.
            logger.exception("following %s failed; it goes on where it was", self._names())
            self._away = True
        finally:
            self._get_off()
        if self._away:
            self._alone_until = Instant(self._clock.now() + ALONE)
            self._stopping.wait(self._wait)
            self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _begin(self) -> bool:
        """Learn where the places begin and end now, and where to start; False when stopped before."""
        while not self._stopping.is_set():
            try:
                found, at = self._admin.submit(self._look, self._settings.request_timeout).result()
            except LogClosed:
                return False
            except EventLogError as error:
                logger.warning("following %s waits: %s", self._names(), error)
                self._stopping.wait(LONGEST_WAIT)
                continue
            self._ends = {place: end for place, (_, end) in found.items()}
            self._begins = {place: begin for place, (begin, _) in found.items()}
            self._positions = at
            self.begun.set_result(None)
            return True
        return False

    def _look(self, client: KafkaAdminClient) -> tuple[dict[Place, tuple[int, int]], dict[Place, int]]:
        plan = self._plan
        found = spans(client, self._places)
        at = starts(client, found, plan.start)
        if plan.group is not None and plan.start.at in ("end", "time"):
            begin_group(client, plan.group, at)
        return found, at

    def _room(self, within: float) -> bool:
        """Whether the loop keeps up; waits for it at most `within` seconds."""
        with self._changed:
            bound = self._settings.subscriber_bound
            self._changed.wait_for(lambda: self._outstanding < bound or self._stopping.is_set(), within)
            return self._outstanding < bound

    # Carried: by the trunk, whose thread calls `carry`.

    def carry(self, come: Mapping[Place, Sequence[Opened]]) -> bool:
        """See `trunk.Rider`."""
        records: list[Record] = []
        after: dict[Place, int] = {}
        for place, opened in come.items():
            at = self._positions.get(place)
            if at is None or not opened:
                continue
            new = [one for one in opened if one.raw.offset >= at]
            records += [record for one in new if (record := self._opener.open(one.raw, one.found)) is not None]
            after[place] = max(at, opened[-1].raw.offset + 1)
        try:
            self._hand_over(records)
        except RuntimeError:  # the loop has been closed before the log
            self._listens = False
        self._positions |= after
        return self._listens and self._outstanding < self._settings.subscriber_bound

    def go_back(self, place: Place, offset: int) -> None:
        """See `trunk.Rider`."""
        self._positions[place] = min(offset, self._positions[place])

    def put_down(self) -> None:
        """See `trunk.Rider`."""
        with self._changed:
            self._aboard = False
            self._changed.notify_all()

    def _board(self, consumer: KafkaConsumer) -> bool:
        """Whether the trunk carries us from here on: we have all there was, are not behind, and have not failed lately
        (what we failed at would be everybody's trouble then)."""
        trunk = self.trunk
        if trunk is None or not self._told_caught_up or self._scans or self._interrupted():
            return False
        if not self._positions or self._outstanding > self._settings.subscriber_bound // 2:
            return False
        if self._clock.now() < self._alone_until or not self._is_near(consumer):
            return False
        self._works()
        self._aboard = True  # before: we may be put down before we hear that we are aboard
        if not trunk.board(self, self._positions):
            self._aboard = False
            return False
        return True

    def _is_near(self, consumer: KafkaConsumer) -> bool:
        """Whether the brokers have answered about all of our places, and what is left to read is what the trunk keeps.
        (Asked for from further back it would read the past besides us.)"""
        left = 0
        for place, at in self._positions.items():
            end = consumer.highwater(TopicPartition(*place))
            if end is None:
                return False
            left += max(0, end - at)
        return left <= PAST

    def _ride(self) -> None:
        """Until there is something to do, or the trunk put us down; then we read alone again, from where we are."""
        with self._changed:  # nothing is asked for meanwhile, so the wait needs no bound
            self._changed.wait_for(lambda: self._interrupted() or not self._aboard)
        if not self._listens:
            raise RuntimeError("nobody listens any more")

    def _get_off(self) -> None:
        """However a session ended: nothing is given to us by the trunk beside what we read ourselves."""
        if self.trunk is not None:
            self.trunk.leave(self)
        self._aboard = False

    def _interrupted(self) -> bool:
        """Whether the thread has something else to do than to read."""
        return self._stopping.is_set()

    def _works(self) -> None:
        """The brokers answer."""
        if self._away:
            logger.info("following %s goes on", self._names())
        self._away, self._wait = False, FIRST_WAIT

    def _handle(self, consumer: KafkaConsumer, polled: Polled) -> None:
        """Deliver what was polled; scans when they are through; once, that all of the past has been delivered."""
        records: list[Record] = []
        for partition, raws in polled.items():
            place = (partition.topic, partition.partition)
            self._positions[place] = raws[-1].offset + 1
            if place in self._scans:
                self._scans[place].feed(raws, self._opener)
            else:
                records += [record for raw in raws if (record := self._opener.open(raw)) is not None]
        if records:
            self._hand_over(records)
        if polled:
            self._works()
        if not self._told_caught_up:
            self._look_for_ends(consumer)

    def _look_for_ends(self, consumer: KafkaConsumer) -> None:
        behind = False
        for place in self._held(consumer):
            if not self._reached(consumer, place):
                behind = True
            elif place in self._scans:
                behind |= not self._finish_scan(consumer, place)
        if not behind and self._held(consumer):
            self._told_caught_up = True
            self._send(Delivery(caught_up=True))

    def _reached(self, consumer: KafkaConsumer, place: Place) -> bool:
        end = self._ends.get(place, 0)
        if self._positions.get(place, -1) >= end:
            return True
        position = None
        with suppress(KafkaTimeoutError), if_still_ours():
            # What was compacted away at the end, and markers of transactions, are no records.
            position = consumer.position(TopicPartition(*place), timeout_ms=POSITION)
        if position is not None:
            self._positions[place] = position
        return position is not None and bool(position >= end)

    def _finish_scan(self, consumer: KafkaConsumer, place: Place) -> bool:
        newest = self._scans[place].newest(self._opener)
        if newest is None:
            self._scans[place] = Scan(careful=True)
            self._positions[place] = self._begins[place]
            with if_still_ours():
                consumer.seek(TopicPartition(*place), self._begins[place])
            return False
        del self._scans[place]
        self._hand_over(newest)
        return True

    def _held(self, consumer: KafkaConsumer) -> Sequence[Place]:
        """The places that this reader has now."""
        return [(partition.topic, partition.partition) for partition in consumer.assignment() or ()]

    def _hand_over(self, records: Sequence[Record]) -> None:
        for first in range(0, len(records), BATCH):
            self._send(Delivery(records=tuple(records[first : first + BATCH])))

    def _send(self, delivery: Delivery) -> None:
        with self._changed:
            self._outstanding += len(delivery.records)
        self._deliver(self, delivery)

    def _names(self) -> str:
        return ", ".join(self._plan.topics)


class AllFollower(Follower):
    """Without a group: all partitions, assigned by hand."""

    _told_places = False

    def _session(self) -> None:
        if not self._positions:  # none of the topics exists
            self._tell_places()
            self._send(Delivery(caught_up=True))
            self._stopping.wait()
            return
        consumer = make_consumer(self._settings, self._plan.existing)
        try:
            consumer.assign([TopicPartition(*place) for place in self._places])
            for place in self._places:
                consumer.seek(TopicPartition(*place), self._positions[place])
            self._tell_places()
            while not self._stopping.is_set() and not self._board(consumer):
                if self._room(ROOM):
                    self._handle(consumer, consumer.poll(timeout_ms=POLL, max_records=BATCH))
        finally:
            consumer.close(autocommit=False, timeout_ms=CLOSING)

    def _tell_places(self) -> None:
        if self._plan.start.at == "newest_per_key" and not self._told_caught_up and not self._scans:
            self._scans = {place: Scan() for place in self._places}
        if not self._told_places:
            self._told_places = True
            self._send(Delivery(assigned=tuple(self._places)))
