"""The producer's thread: the only one that produces.

Appends go before offers and keep their order, and so do offers. The client has no bound, so what is in flight is
counted here. A batch that was not acknowledged within the delivery timeout leaves kafka-python's idempotent producer
stuck for good; then it is thrown away: appends in flight are told that they failed (they may stand in the log all the
same; an append with the same ids again is the same event), offers in flight are sent again. Readers deliver what stands
twice once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from kafka import KafkaProducer
from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from kafka.producer.future import RecordMetadata

from events.adapters.kafka.client import FIRST_WAIT, LONGEST_WAIT, make_producer, told
from events.adapters.kafka.outgoing import Answer, Append, Outcome, Sent
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import outgoing
from events.clock import SystemClock
from events.codec import Unencodable
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogUnavailable, Position

logger = logging.getLogger(__name__)

GATE: Final = 5.0
"""Longest wait, in seconds, for a subscription to find where the topics end; then writing goes on."""

CLOSING: Final = 10.0
"""Longest wait, in seconds, for what waits to be written when the log is closed."""

_REFUSED = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecordError)
"""The broker's word on one record; the others are not concerned."""


class Producer:
    """Started once. The loop calls the public methods; `tell` is called in other threads: then `take` what happened."""

    def __init__(self, settings: KafkaSettings, partitions: Mapping[str, int], tell: Callable[[], None]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._tell = tell
        self._changed = threading.Condition()
        self._appends: deque[Append] = deque()
        self._offers: deque[AnyEnvelope] = deque()
        self._gates: deque[Future[None]] = deque()
        self._in_flight: dict[int, Sent] = {}
        self._appends_waiting = 0
        self._offers_waiting = 0
        self._serial = 0
        self._generation = 0
        self._broken: BaseException | None = None
        self._away = False
        self._wait = FIRST_WAIT
        self._outcome = Outcome()
        self._telling = False
        self._stopping = False
        self._ends_at = 0.0
        self._clock = SystemClock()
        self._client: KafkaProducer | None = None
        self._thread = threading.Thread(target=self._run, name="relume-kafka-producer", daemon=True)
        self.closed: Future[None] = Future()
        """Done when everything is written, or given up."""
        self.closed.set_running_or_notify_cancel()

    # The loop's side.

    def start(self) -> None:
        """Connect and produce, in the thread."""
        self._thread.start()

    def submit(self, append: Append) -> bool:
        """Write as soon as can be; False when too many wait."""
        with self._changed:
            if self._appends_waiting + len(append.events) > self._settings.append_bound:
                return False
            self._appends_waiting += len(append.events)
            self._appends.append(append)
            self._changed.notify_all()
            return True

    def offer(self, envelope: AnyEnvelope) -> bool:
        """Write when the appends are written; False when too many wait."""
        with self._changed:
            if self._stopping or self._offers_waiting >= self._settings.offer_bound:
                return False
            self._offers_waiting += 1
            self._offers.append(envelope)
            self._changed.notify_all()
            return True

    def gate(self, opened: Future[None]) -> None:
        """What is submitted or offered after this is written after `opened` is done."""
        with self._changed:
            self._gates.append(opened)
            self._changed.notify_all()

    def take(self) -> Outcome:
        """What happened since the last call."""
        with self._changed:
            outcome, self._outcome, self._telling = self._outcome, Outcome(), False
            return outcome

    def depth(self) -> int:
        """Events that wait or are in flight."""
        with self._changed:
            return self._appends_waiting + self._offers_waiting

    def stop(self) -> None:
        """Write what waits, then close; see `closed`."""
        with self._changed:
            self._stopping = True
            self._ends_at = self._clock.now() + CLOSING
            self._changed.notify_all()

    # The thread's.

    def _run(self) -> None:
        try:
            while not self._finished():
                if self._client is None:
                    self._connect()
                    continue
                self._pass_gates()
                if self._broken is not None:
                    self._remake(self._broken)
                    continue
                for append, events in self._next():
                    self._send(append, events)
        except Exception:
            logger.exception(
                "the producer of the event log failed over a fault of its own; nothing is written any more"
            )
        finally:
            self._end()

    def _connect(self) -> None:
        try:
            client = make_producer(self._settings)
        except (KafkaError, OSError) as error:
            if not self._away:
                logger.warning("events wait: %s", told(self._settings, error))
            self._away = True
            self._pause()
            return
        with self._changed:
            self._client = client
        if self._away:
            logger.info("events are written again")
        self._away = False

    def _pause(self) -> None:
        """Before another try; longer each time until something was acknowledged."""
        with self._changed:
            if not self._stopping:
                self._changed.wait_for(lambda: self._stopping, timeout=self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _pass_gates(self) -> None:
        while self._gates and not self._stopping:
            try:
                self._gates[0].result(GATE)
            except TimeoutError:
                logger.warning("a subscription has not found the ends of its topics within %s s", GATE)
            self._gates.popleft()

    def _next(self) -> list[tuple[Append | None, tuple[AnyEnvelope, ...]]]:
        """The next work; empty when there is something else to do."""
        with self._changed:
            while self._broken is None and not self._gates and not self._done():
                if len(self._in_flight) < self._settings.in_flight_bound:
                    if self._appends:
                        append = self._appends.popleft()
                        if append.abandoned:
                            self._answer(append, LogUnavailable("nobody waited for it any more"))
                            continue
                        return [(append, append.events)]
                    if self._offers:
                        return [(None, (self._offers.popleft(),))]
                self._changed.wait(0.5 if self._stopping else None)
            return []

    def _send(self, append: Append | None, events: tuple[AnyEnvelope, ...]) -> None:
        """Encode all, then send all: an event that cannot be written leaves out its whole append."""
        try:
            records = [outgoing(event, self._partitions, self._settings.max_event_bytes) for event in events]
        except Unencodable as error:
            self._refuse(append, error)
            return
        for index, (record, event) in enumerate(zip(records, events, strict=True)):
            self._send_one(Sent(record, event, append, index))

    def _send_one(self, sent: Sent) -> None:
        with self._changed:
            self._serial += 1
            serial, generation = self._serial, self._generation
            self._in_flight[serial] = sent
        record = sent.record
        try:
            assert self._client is not None
            future = self._client.send(
                record.topic, record.value, record.key, record.headers, partition=record.partition
            )
        except (KafkaError, AssertionError, ValueError) as error:  # the latter two: a partition that is not there
            self._failed(serial, generation, error)
            return
        future.add_callback(self._acknowledged, serial)
        future.add_errback(self._failed, serial, generation)

    # Called in the client's thread.

    def _acknowledged(self, serial: int, metadata: RecordMetadata) -> None:
        with self._changed:
            sent = self._in_flight.get(serial)
            if sent is None:
                return
            if metadata.offset < 0 and sent.append is not None:  # written, but the broker forgot where
                self._broken = self._broken or LogUnavailable("the broker did not say where an event stands")
                return
            del self._in_flight[serial]
            self._wait = FIRST_WAIT
            self._outcome.appended += 1
            position = Position(metadata.topic, metadata.partition, metadata.offset)
            if sent.append is None:
                self._offers_waiting -= 1
            elif sent.append.take(sent.index, position):
                self._answer(sent.append, sent.append.answer())
            self._happened()

    def _failed(self, serial: int, generation: int, error: BaseException) -> None:
        with self._changed:
            if generation != self._generation or serial not in self._in_flight:
                return
            if isinstance(error, _REFUSED):
                sent = self._in_flight.pop(serial)
                self._refuse(sent.append, Unencodable(f"{sent.ident}: {told(self._settings, error)}"))
                return
            self._broken = self._broken or error
            self._changed.notify_all()

    # Inside; the lock may be held already (it may be taken again).

    def _remake(self, error: BaseException) -> None:
        """Throw the client away. What was in flight may stand in the log or not."""
        logger.warning("the producer is made anew: %s", told(self._settings, error))
        with self._changed:
            client, self._client = self._client, None
            self._generation += 1
            self._broken = None
            in_flight, self._in_flight = self._in_flight, {}
            failed: dict[int, Append] = {}
            for sent in reversed(in_flight.values()):
                if sent.append is None:
                    self._offers.appendleft(sent.envelope)
                else:
                    failed[sent.append.token] = sent.append
            for append in failed.values():
                self._answer(append, LogUnavailable(told(self._settings, error)))
            self._outcome.remade += 1
            self._happened()
        _discard(client)
        self._pause()

    def _refuse(self, append: Append | None, error: Unencodable) -> None:
        with self._changed:
            if append is None:
                self._offers_waiting -= 1
                self._outcome.unencodable += 1
                logger.error("an offered event cannot be written: %s", error)
            else:
                self._answer(append, error)
            self._happened()

    def _answer(self, append: Append, answer: Answer) -> None:
        if not append.answered:
            append.answered = True
            self._appends_waiting -= len(append.events)
            self._outcome.answers.append((append.token, answer))

    def _happened(self) -> None:
        self._changed.notify_all()
        if not self._telling:
            self._telling = True
            self._outcome.groups += 1
            self._tell()

    def _done(self) -> bool:
        left = self._appends or self._offers or self._in_flight
        return self._stopping and (not left or self._clock.now() >= self._ends_at)

    def _finished(self) -> bool:
        with self._changed:
            return self._done()

    def _end(self) -> None:
        with self._changed:
            self._stopping = True
            self._generation += 1
            client, self._client = self._client, None
            appends = {sent.append.token: sent.append for sent in self._in_flight.values() if sent.append is not None}
            appends |= {append.token: append for append in self._appends}
            for append in appends.values():
                self._answer(append, LogClosed("the log was closed"))
            self._outcome.lost += self._offers_waiting
            self._offers_waiting = 0
            self._appends.clear()
            self._offers.clear()
            self._in_flight.clear()
            self._happened()
        _discard(client)
        self.closed.set_result(None)


def _discard(client: KafkaProducer | None) -> None:
    """Close what has nothing left to do at once; force what is stuck."""
    if client is None:
        return
    try:
        client.close(timeout=0.5)
    except (KafkaError, OSError) as error:
        logger.debug("forcing a producer to close: %s", error)
        client._sender.force_close()  # noqa: SLF001 - kafka-python has no public way out of a wedged producer
