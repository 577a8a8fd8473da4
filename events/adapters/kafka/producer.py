"""The producer's thread: the only one that produces.

Appends go before offers and keep their order, and so do offers. The client has no bound, so what is in flight is
counted (`backlog`). A batch that was not acknowledged within the delivery timeout leaves kafka-python's idempotent
producer stuck for good; then it is thrown away: appends in flight are told that they failed (they may stand in the log
all the same; an append with the same ids again is the same event), offers in flight are sent again. Readers deliver
what stands twice once.
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

from events.adapters.kafka.backlog import SILENT, Backlog, Work
from events.adapters.kafka.client import FIRST_WAIT, LONGEST_WAIT, make_producer, told
from events.adapters.kafka.outgoing import Append, Outcome, Sent
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import outgoing
from events.clock import SystemClock
from events.codec import Unencodable
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position

logger = logging.getLogger(__name__)

GATE: Final = 5.0
"""Longest wait, in seconds, for a subscription to find where the topics end; then writing goes on."""

CLOSING: Final = 10.0
"""Longest wait, in seconds, for what waits to be written when the log is closed."""

CLOSING_AWAY: Final = 1.0
"""The same while the brokers are away."""

_REFUSED = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecordError)
"""The broker's word on one record; the others are not concerned."""


class Producer:
    """Started once. The loop calls the public methods; `tell` is called in other threads: then `take` what happened."""

    def __init__(self, settings: KafkaSettings, partitions: Mapping[str, int], tell: Callable[[], None]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._backlog = Backlog(settings, tell)
        self._changed = self._backlog.changed
        self._gates: deque[Future[None]] = deque()
        self._generation = 0
        self._broken: BaseException | None = None
        self._away = ""
        self._wait = FIRST_WAIT
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
        return self._backlog.submit(append)

    def offer(self, envelope: AnyEnvelope) -> bool:
        """Write when the appends are written; False when too many wait."""
        return not self._stopping and self._backlog.offer(envelope)

    def gate(self, opened: Future[None]) -> None:
        """What is submitted or offered after this is written after `opened` is done."""
        with self._changed:
            self._gates.append(opened)
            self._changed.notify_all()

    def take(self) -> Outcome:
        """What happened since the last call."""
        return self._backlog.take()

    def depth(self) -> int:
        """Events that wait or are in flight."""
        return self._backlog.depth()

    def trouble(self) -> str:
        """Why nothing is written now; empty when it is."""
        silence = self._backlog.silent_for()
        servers = ",".join(self._settings.servers)
        return self._away or (f"Kafka at {servers}: no word for {silence:.0f} s" if silence > SILENT else "")

    def stop(self) -> None:
        """Write what waits, then close; see `closed`."""
        bound = CLOSING_AWAY if self.trouble() else CLOSING
        with self._changed:
            self._stopping = True
            self._ends_at = self._clock.now() + bound
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
                work = self._next()
                if work is not None:
                    self._send(work)
        except Exception as error:
            logger.exception(
                "the producer of the event log failed over a fault of its own; nothing is written any more"
            )
            self._away = f"the producer failed: {error!r}"
        finally:
            self._end()

    def _connect(self) -> None:
        try:
            client = make_producer(self._settings, self._partitions)
        except (KafkaError, OSError) as error:
            if not self._away:
                logger.warning("events wait: %s", told(self._settings, error))
            self._away = told(self._settings, error)
            self._pause()
            return
        self._client = client
        if self._away:
            logger.info("events are written again")
        self._away = ""

    def _pause(self) -> None:
        """Before another try; longer each time until something was acknowledged."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT)

    def _pass_gates(self) -> None:
        while self._gates and not self._stopping:
            try:
                self._gates[0].result(GATE)
            except TimeoutError:
                logger.warning("a subscription has not found the ends of its topics within %s s", GATE)
            self._gates.popleft()

    def _next(self) -> Work | None:
        """The next work, once there is some; None when there is something else to do."""
        with self._changed:
            while self._broken is None and not (self._gates and not self._stopping) and not self._done():
                work = self._backlog.next()
                if work is not None:
                    return work
                self._changed.wait(0.5 if self._stopping else None)
            return None

    def _send(self, work: Work) -> None:
        """Encode, then send: an event that cannot be written leaves out its whole append, or itself as an offer."""
        if work.append is not None:
            self._send_all(work.append, work.events)
            return
        for at, event in enumerate(work.events):
            if self._broken is not None:
                self._backlog.put_back(work.events[at:])
                return
            self._send_all(None, (event,))

    def _send_all(self, append: Append | None, events: tuple[AnyEnvelope, ...]) -> None:
        try:
            records = [outgoing(event, self._partitions, self._settings.max_event_bytes) for event in events]
        except Unencodable as error:
            if append is None:
                logger.exception("an offered event cannot be written")
            with self._changed:
                self._backlog.refuse(append, error)
            return
        for index, (record, event) in enumerate(zip(records, events, strict=True)):
            self._send_one(Sent(record, event, append, index))
            if self._broken is not None:
                return  # what came after would be written before what failed; all of the append is told so

    def _send_one(self, sent: Sent) -> None:
        serial, generation, record = self._backlog.fly(sent), self._generation, sent.record
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

    def _acknowledged(self, serial: int, metadata: RecordMetadata) -> None:
        """Called in the client's thread."""
        with self._changed:
            sent = self._backlog.flying(serial)
            if sent is None:
                return
            if metadata.offset < 0 and sent.append is not None:  # written, but the broker forgot where
                self._break(LogUnavailable("the broker did not say where an event stands"))
                return
            self._wait = FIRST_WAIT
            self._backlog.acknowledged(serial, Position(metadata.topic, metadata.partition, metadata.offset))

    def _failed(self, serial: int, generation: int, error: BaseException) -> None:
        """Called in the client's thread."""
        with self._changed:
            sent = self._backlog.flying(serial)
            if generation != self._generation or sent is None:
                return
            if isinstance(error, _REFUSED):
                self._backlog.refused(serial, Unencodable(f"{sent.envelope.id}: {told(self._settings, error)}"))
            else:
                self._break(error)

    def _break(self, error: BaseException) -> None:
        self._broken = self._broken or error
        self._changed.notify_all()

    def _remake(self, error: BaseException) -> None:
        """Throw the client away. What was in flight may stand in the log or not."""
        logger.warning("the producer is made anew: %s", told(self._settings, error))
        with self._changed:
            client, self._client, self._broken = self._client, None, None
            self._generation += 1
            self._backlog.ground(LogUnavailable(told(self._settings, error)))
        _discard(client)
        self._pause()

    def _done(self) -> bool:
        return self._stopping and (self._backlog.empty() or self._clock.now() >= self._ends_at)

    def _finished(self) -> bool:
        with self._changed:
            return self._done()

    def _end(self) -> None:
        with self._changed:
            self._stopping = True
            self._generation += 1
            client, self._client = self._client, None
            self._backlog.give_up()
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
