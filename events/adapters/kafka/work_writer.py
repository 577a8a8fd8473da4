"""The transactions' thread of a member that does work: effects and offsets, together or not at all.

A transaction whose end is not known (the brokers went away) is looked into before it is tried again: a producer of the
same name is made, which ends what was open, and the group's offsets say whether it counted. Every effect moves its
place's mark, so equal marks mean that it did.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from events.adapters.kafka.client import Admin, TransactionalProducer, make_transactional, passes, told
from events.adapters.kafka.predecessors import dismiss
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import Outgoing, outgoing
from events.adapters.kafka.work_copies import Copies
from events.adapters.kafka.work_member import Held
from events.adapters.kafka.work_reading import to_text
from events.adapters.store import Place
from events.clock import SystemClock
from events.codec import to_binary
from events.log import LogClosed, LogUnavailable
from events.work import Effect

logger = logging.getLogger(__name__)

FIRST_WAIT: Final = 0.05
LONGEST_WAIT: Final = 1.0


class _Dealing(Exception):
    """The group deals its partitions anew: what would be written now would be taken back."""


class WorkWriter:
    """`settle` and `close` are called by the loop."""

    def __init__(
        self, settings: KafkaSettings, admin: Admin, names: tuple[str, str], partitions: Mapping[str, int],
        held: Callable[[], Held | None],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._admin = admin
        self._group, self._name = names
        self._partitions = partitions
        self._held = held
        self._clock = SystemClock()
        self._copies = Copies(admin, settings.request_timeout)
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relume-kafka-transactions")
        self._producer: TransactionalProducer | None = None
        self._unsure = True
        """Whether an earlier transaction may have been committed without our knowing."""

    def begin(self) -> Future[None]:
        """End what an earlier process of our name left open, and its membership."""
        return self._thread.submit(self._begin)

    def settle(self, effects: Mapping[Place, Effect]) -> Future[frozenset[Place]]:
        """See `events.work.WorkQueue.settle`."""
        records = {
            place: [outgoing(event, self._partitions, self._settings.max_event_bytes) for event in effect.events]
            for place, effect in effects.items()
        }  # raises Unencodable
        try:
            return self._thread.submit(self._settle, effects, records)
        except RuntimeError as error:
            raise LogClosed("the work was left") from error

    def close(self) -> Future[None]:
        """End what is under way; done when the thread has nothing left."""
        self._closing.set()
        done = self._thread.submit(self._discard)
        self._thread.shutdown(wait=False)
        return done

    # In the thread.

    def _begin(self) -> None:
        ends_at, wait = self._clock.now() + self._settings.append_timeout, FIRST_WAIT
        while self._producer is None:
            try:
                self._producer = make_transactional(self._settings, self._name)
            except (KafkaError, OSError) as error:
                if self._closing.wait(wait):
                    raise LogClosed("the work was left") from error
                if self._clock.now() >= ends_at:
                    raise LogUnavailable(told(self._settings, error)) from error
                wait = min(wait * 2, LONGEST_WAIT)
        try:
            left = self._admin.submit(
                lambda client: dismiss(client, self._group, self._name), self._settings.request_timeout
            ).result(self._settings.append_timeout)
        except (LogUnavailable, TimeoutError) as error:  # its session ends in any case
            logger.info("nobody was taken out of %s: %s", self._group, error)
        else:
            if left:
                logger.info("%s was left in %s by a process that died", self._name, self._group)

    def _settle(self, effects: Mapping[Place, Effect], records: Mapping[Place, list[Outgoing]]) -> frozenset[Place]:
        ends_at, wait = self._clock.now() + self._settings.append_timeout, FIRST_WAIT
        settled: set[Place] = set()
        while True:
            try:
                return self._attempt(effects, records, settled)
            except (_Dealing, KafkaError, OSError, ValueError) as error:
                if not isinstance(error, _Dealing):
                    self._discard()
                    effects = _without(effects, self._copies.failed())
                if self._closing.wait(wait):
                    raise LogClosed("the work was left") from error
                if isinstance(error, ValueError) or self._clock.now() >= ends_at:
                    raise LogUnavailable(told(self._settings, error)) from error
                if isinstance(error, KafkaError) and not passes(error):
                    logger.info("a transaction is tried again: %s", told(self._settings, error))
                wait = min(wait * 2, LONGEST_WAIT)

    def _attempt(
        self, effects: Mapping[Place, Effect], records: Mapping[Place, list[Outgoing]], settled: set[Place]
    ) -> frozenset[Place]:
        """One transaction, unless an earlier one turns out to have been committed: then `settled` grows."""
        held = self._held()
        if held is None:
            raise _Dealing("the group deals its partitions")
        if self._producer is None:
            self._producer = make_transactional(self._settings, self._name)
        if self._unsure:
            settled |= self._those_committed(effects)
            self._unsure = False
        left: Mapping[Place, Effect] = {
            p: e for p, e in effects.items() if p not in settled and held.terms.get(p) == e.term
        }
        if left:
            left = _without(left, self._copies.away(topic for one in left.values() for topic, _ in one.copies))
            self._unsure = True
            self._transact(left, records, held)
            self._unsure = False
        return frozenset(settled | left.keys())

    def _transact(
        self, effects: Mapping[Place, Effect], records: Mapping[Place, list[Outgoing]], held: Held
    ) -> None:  # fmt: skip
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        self._copies.begin()
        for place in effects:
            for record in records[place]:
                producer.send(record.topic, record.value, record.key, record.headers, partition=record.partition)
            for topic, event in effects[place].copies:
                binary = to_binary(event, self._settings.max_event_bytes)
                self._copies.sent(topic, producer.send(topic, binary.data, binary.key, list(binary.headers)))
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(effect.mark.next_offset, to_text(effect.mark), -1)
            for place, effect in effects.items()
        }
        producer.send_offsets_to_transaction(offsets, held.metadata)
        producer.commit_transaction()

    def _those_committed(self, effects: Mapping[Place, Effect]) -> frozenset[Place]:
        """Of these effects, those that the group's offsets tell of."""
        found = self._admin.submit(
            lambda client: client.list_group_offsets(self._group).get(self._group, {}), self._settings.request_timeout
        ).result(self._settings.append_timeout)  # TimeoutError: an OSError
        marks = {(tp.topic, tp.partition): (one.offset, one.metadata or "") for tp, one in found.items()}
        return frozenset(
            place for place, effect in effects.items()
            if marks.get(place) == (effect.mark.next_offset, to_text(effect.mark))
        )  # fmt: skip

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer._sender.force_close()  # noqa: SLF001 - kafka-python has no public way out of a wedged producer
            try:
                producer.close(timeout=0.5)
            except (KafkaError, OSError) as error:
                logger.debug("closing a transactional producer: %s", error)


def _without(effects: Mapping[Place, Effect], topics: frozenset[str]) -> Mapping[Place, Effect]:
    """The same, without copies for these topics."""
    if not topics:
        return effects
    return {
        place: replace(effect, copies=tuple(copy for copy in effect.copies if copy[0] not in topics))
        for place, effect in effects.items()
    }
