"""One reader of the newest records for all subscriptions of a process that have read what there was before.

Each subscription of its own would fetch, check and decode each record anew: a cluster process has nine, so a grant in
the log would be read nine times, by threads that take turns (one interpreter), before the last one hears of it. And
each asks the brokers twice a second whether there is something.

Who has read everything up to the end asks to `board`, from the offsets where it is. It is carried once the trunk reads
all of its places: what the trunk has read since those offsets is given at once, from memory (`past`), then what comes.
So nothing is missed and nothing told twice. Who falls behind is put down and reads alone again, as far behind as it
likes; the others go on. So is who fails at a record. A trunk that fails puts all down: then each meets by itself what
concerns it, and nothing else. A place whose log lost its end (a broker without it was made leader) is read from there
again, and its riders go back with it: what is appended anew under old offsets is news.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from events.adapters.kafka.client import LONGEST_WAIT, make_consumer, told
from events.adapters.kafka.past import Opened, Past
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import RawRecord
from events.adapters.store import Place
from events.clock import Clock, SystemClock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

BATCH: Final = 512
"""Most records of one poll."""

TURN: Final = 200
"""Milliseconds of one poll; a record ends it at once. So long may a new place, or a close, wait."""

KEPT: Final = Seconds(2.0)
"""Seconds for which a place is read that nobody rides for: who asked for it is about to come back."""

CLOSING: Final = 2000  # milliseconds that a consumer has for its farewell


class Rider(Protocol):
    """A subscription. Its methods are called with the trunk's lock held, in the trunk's thread or that of `board`."""

    def carry(self, come: Mapping[Place, Sequence[Opened]]) -> bool:
        """Take what is yours, from where you are. False: no more for now. What raises has taken nothing."""

    def go_back(self, place: Place, offset: int) -> None:
        """The log of a place ends before where you are: go on from this offset there."""

    def put_down(self) -> None:
        """You are not carried any more; go on where you are."""


class Trunk:
    """Its thread runs from the first `board` to `close`."""

    def __init__(self, settings: KafkaSettings, partitions: Mapping[str, int], topics: Sequence[str]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._topics = [topic for topic in topics if topic in partitions]
        self._clock: Clock = SystemClock()
        self._lock = threading.Condition()
        self._riders: dict[Rider, frozenset[Place]] = {}
        self._positions: dict[Place, int] = {}
        """Where the consumer goes on, of each place that is wanted."""
        self._wanted_at: dict[Place, Instant] = {}
        self._sought: set[Place] = set()
        """Places that the consumer reads from where it should. What it gave of others is not what was asked for."""
        self._read: set[Place] = set()
        """Places of which the brokers have told the consumer something: their records come by themselves."""
        self._past = Past()
        self._closed = False
        self.closed: Future[None] = Future()
        """Done when the thread has ended, or will not begin."""
        self.closed.set_running_or_notify_cancel()
        self._thread = threading.Thread(target=self._run, name="relume-kafka-trunk", daemon=True)

    # The riders' side.

    def board(self, rider: Rider, positions: Mapping[Place, int]) -> bool:
        """Carry it from these offsets on; False: not yet, ask again. What came since is given before this returns."""
        with self._lock:
            if self._closed:
                return False
            now = self._clock.now()
            for place, offset in positions.items():
                self._wanted_at[place] = now
                if place not in self._positions:
                    self._positions[place] = offset
                    self._past.begin(place, offset)
                    self._lock.notify_all()
            if not self._runs() or not self._read.issuperset(positions):
                return False
            late = self._past.since(positions)
            if late is None:
                return False
            self._riders[rider] = frozenset(positions)
            if not self._give(rider, late):
                self._put_down([rider])
            return True

    def _runs(self) -> bool:
        """Whether the thread does; begins it if need be."""
        if self._thread.ident is None:
            try:
                self._thread.start()
            except RuntimeError as error:  # the system gives no more threads now
                logger.warning("all subscriptions read alone for now: %s", error)
                return False
        return True

    def leave(self, rider: Rider) -> None:
        """Carry it no longer; nothing is given to it after this."""
        with self._lock:
            now = self._clock.now()
            for place in self._riders.pop(rider, ()):
                self._wanted_at[place] = now

    def close(self) -> None:
        """End; see `closed`. All riders have left, or are put down."""
        with self._lock:
            if not self._closed and self._thread.ident is None:
                self.closed.set_result(None)
            self._closed = True
            self._put_down(list(self._riders))
            self._lock.notify_all()

    # The thread.

    def _run(self) -> None:
        try:
            while self._wanted():
                try:
                    self._session()
                except (KafkaError, OSError) as error:
                    logger.info("all subscriptions read alone for now: %s", told(self._settings, error))
                except Exception:
                    logger.exception("the reader that subscriptions share failed; each reads alone for now")
                self._reset()
                with self._lock:
                    self._lock.wait_for(lambda: self._closed, LONGEST_WAIT)
        finally:
            self.close()  # whatever ended it: who rode would wait for ever
            self.closed.set_result(None)

    def _wanted(self) -> bool:
        """Waits until somebody wants something; False: closed."""
        with self._lock:
            self._lock.wait_for(lambda: self._positions or self._closed)
            return not self._closed

    def _reset(self) -> None:
        """Carry nobody and read nothing, until somebody asks."""
        with self._lock:
            self._put_down(list(self._riders))
            for place in list(self._positions):
                self._drop(place)

    def _session(self) -> None:
        """Read with one client until closed, or it fails."""
        consumer = make_consumer(self._settings, self._topics)
        try:
            while self._assign(consumer):
                polled = consumer.poll(timeout_ms=TURN, max_records=BATCH)
                self._hear(consumer)
                if polled:
                    self._carry({(tp.topic, tp.partition): raws for tp, raws in polled.items()})
        finally:
            consumer.close(autocommit=False, timeout_ms=CLOSING)

    def _assign(self, consumer: KafkaConsumer) -> bool:
        """Have the consumer read what is wanted; waits while nothing is. False: closed."""
        with self._lock:
            self._drop_unwanted()
        if not self._wanted():
            return False
        with self._lock:
            wanted = dict(self._positions)
        new = wanted.keys() - self._sought
        if new or len(wanted) != len(consumer.assignment() or ()):
            consumer.assign([TopicPartition(*place) for place in wanted.keys() - new])  # what comes back begins anew
            consumer.assign([TopicPartition(*place) for place in wanted])
            for place in new:
                consumer.seek(TopicPartition(*place), wanted[place])
            self._sought |= new
        return True

    def _drop_unwanted(self) -> None:
        before = self._clock.now() - KEPT
        ridden = frozenset().union(*self._riders.values())
        for place in [one for one in self._positions if one not in ridden and self._wanted_at[one] < before]:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        del self._positions[place], self._wanted_at[place]
        self._sought.discard(place)
        self._read.discard(place)
        self._past.forget(place)

    def _hear(self, consumer: KafkaConsumer) -> None:
        """The brokers have answered about these places: the next fetch has them too."""
        with self._lock:
            asked = self._sought - self._read
            self._read.update(one for one in asked if consumer.highwater(TopicPartition(*one)) is not None)

    def _carry(self, polled: Mapping[Place, Sequence[RawRecord]]) -> None:
        opened = {
            place: [Opened(raw, self._partitions.get(raw.topic, 1)) for raw in raws]
            for place, raws in polled.items()
            if place in self._sought
        }
        with self._lock:
            for place, records in opened.items():
                if records[0].raw.offset < self._positions[place]:
                    self._go_back(place, records[0].raw.offset)
                self._positions[place] = records[-1].raw.offset + 1
                self._past.put(place, records)
            self._put_down([rider for rider in self._riders if not self._give(rider, opened)])

    def _go_back(self, place: Place, offset: int) -> None:
        logger.warning("%s, partition %d, had records up to %d, and now goes on at %d: brokers have lost some",
                       *place, self._positions[place] - 1, offset)  # fmt: skip
        self._past.begin(place, offset)
        for rider, places in self._riders.items():
            if place in places:
                rider.go_back(place, offset)

    def _give(self, rider: Rider, come: Mapping[Place, Sequence[Opened]]) -> bool:
        """Whether it takes more. Who fails concerns no other rider; it meets the same records again alone."""
        try:
            return rider.carry(come)
        except Exception:
            logger.exception("a subscription could not take what came; it reads alone for now")
            return False

    def _put_down(self, riders: Sequence[Rider]) -> None:
        for rider in riders:
            for place in self._riders.pop(rider):
                self._wanted_at[place] = self._clock.now()
            rider.put_down()
