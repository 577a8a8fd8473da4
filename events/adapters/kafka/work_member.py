"""The consumer's thread of a member that does work: partitions come and go, records go to the loop.

A rebalance takes all partitions away and gives some back. Those that are given back by the very next generation were
nobody else's meanwhile: they are kept as they are. All others are new, and begin at their mark. One that comes back
after it was another's begins with a new consumer: the old one might still give records that it fetched before.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import ConsumerGroupMetadata, MemberState

from events.adapters.kafka.client import Membership, make_worker, passes, told
from events.adapters.kafka.joining import PATIENCE, Session, if_still_ours, joining, subscribe
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import RawRecord
from events.adapters.kafka.work_reading import from_text, read_work
from events.adapters.store import Place
from events.clock import SystemClock
from events.log import LogClosed, LogUnavailable
from events.work import Assigned, Mark, WorkBatch, WorkItem

logger = logging.getLogger(__name__)

TURN: Final = 50
"""Milliseconds of one poll: so long may a place that is held no more wait."""

BATCH: Final = 256
"""Records of one place that are handed over together."""

ALL: Final = 1_000_000
"""Records of one poll: all that was fetched. kafka-python 3.0.12 forgets a fetch that was read in part when its place
was paused: on resume it is looked for only while nothing else was ever read. So none is read in part, and what is not
handed over at once is kept here. What a fetch holds is bounded by its bytes."""

WAITING: Final = 2048
"""Records that wait for the loop; beyond, nothing is polled for."""

OPEN_TRANSACTION: Final = 25.0
"""Seconds for the offsets of a place to be told: a transaction that a dead member left open holds them back until the
brokers end it, 10 to 20 s later. (A member that polls less often than each 30 s is taken for dead.)"""

JOINING: Final = 40.0
"""Seconds that joining may take: a rebalance waits for other members for 30 s at most (`max_poll_interval_ms`). Then
the member leaves and joins anew."""

PAUSE: Final = 0.5
"""Seconds before a session that broke is begun anew."""


@dataclass(frozen=True, slots=True)
class Held:
    """What this member may commit for: its places with their terms, and what proves it (kafka-python's metadata of the
    group's generation)."""

    terms: Mapping[Place, int]
    metadata: ConsumerGroupMetadata | None = None


class _BackAgain(Exception):
    """A place came back that this consumer had before."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Only counts: it is called in the client's IO thread, where waiting would stop the heartbeats."""

    def __init__(self) -> None:
        self.assignments: deque[frozenset[Place]] = deque()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.assignments.append(frozenset((one.topic, one.partition) for one in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        del revoked  # whether they are gone, the next assignment says


class WorkMember:
    """Started once. `hold` and `stop` are called by the loop; `deliver` is called in the thread."""

    def __init__(
        self, settings: KafkaSettings, names: tuple[str, str], partitions: Mapping[str, int],
        deliver: Callable[[WorkBatch], None], begun: Future[None],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._group, self._name = names
        self._session_timeout = Session(settings.session_timeout)
        self._begun = begun
        self._partitions = partitions
        self._deliver = deliver
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._hold: frozenset[Place] = frozenset()
        self._taken = threading.Semaphore(0)
        self._waiting = 0
        self._terms = 0
        self._kept: dict[Place, deque[RawRecord]] = {}
        """Records that were not handed over: of places that are held back, or whose assignment the client has not told
        yet (it may give their first records before)."""
        self.held = Held({})
        """Replaced whole; the transactions' thread reads it."""
        self._consumer: KafkaConsumer | None = None
        self.behind: Mapping[Place, int] = {}
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()
        self._thread = threading.Thread(target=self._run, name="relume-kafka-work", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leave it; see `ended`."""
        self._stopping.set()

    def hold(self, places: frozenset[Place]) -> None:
        """Deliver nothing of these."""
        self._hold = places

    def taken(self, count: int) -> None:
        """So many records were taken by the loop."""
        self._taken.release(count)

    def steady(self) -> bool:
        """Whether what is held stands for the group as it is now. May be asked in any thread."""
        consumer, metadata = self._consumer, self.held.metadata
        if consumer is None or metadata is None:
            return False
        now = consumer.group_metadata()
        return bool(now.state == MemberState.STABLE and now.generation_id == metadata.generation_id)

    # In the thread.

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._await_beginning()
            while not self._stopping.is_set() and error is None:
                try:
                    with self._session_timeout.asked(self._group):
                        self._session()
                except _BackAgain:
                    continue
                except (KafkaError, OSError) as failed:
                    logger.warning("work stands still: %s", told(self._settings, failed))
                    error = None if passes(failed) else LogUnavailable(told(self._settings, failed))
                    self._stopping.wait(PAUSE)
        finally:
            self._go(self.held.terms)
            self.ended.set_result(None) if error is None else self.ended.set_exception(error)

    def _await_beginning(self) -> None:
        """Until the transactions' thread has ended what a process of our name left open when it died: as long as a
        transaction is open, nobody is told the offsets that it would commit."""
        while not self._stopping.is_set():
            try:
                self._begun.result(0.1)
            except TimeoutError:
                continue
            except (LogUnavailable, LogClosed) as error:
                logger.warning("work begins without its transactions: %s", error)
            return

    def _session(self) -> None:
        listener = _Listener()
        how = Membership(self._group, self._name, self._session_timeout.seconds)
        consumer = self._consumer = make_worker(self._settings, how)
        generation, stable_at = -1, self._clock.now()
        had: set[Place] = set()
        self._kept.clear()
        try:
            subscribe(consumer, tuple(self._partitions), self._partitions, listener)
            while not self._stopping.is_set():
                self._pause(consumer)
                polled = consumer.poll(timeout_ms=self._patience(consumer), max_records=ALL)
                if listener.assignments:
                    generation = self._rebalance(consumer, listener, generation, had)
                self._hand_over(consumer, polled)
                if consumer.group_metadata().state == MemberState.STABLE:
                    stable_at = self._clock.now()
                elif self._clock.now() - stable_at > JOINING:
                    raise KafkaTimeoutError(f"not a stable member of {self._group} for {JOINING:.0f} s")
        finally:
            self._go(self.held.terms)
            self._consumer = None
            consumer.close(autocommit=False, timeout_ms=2000)

    def _patience(self, consumer: KafkaConsumer) -> int:
        if joining(consumer):
            return PATIENCE
        return 0 if self._ready() else TURN

    def _pause(self, consumer: KafkaConsumer) -> None:
        while self._taken.acquire(blocking=False):
            self._waiting -= 1
        wanted = {one for one in consumer.assignment() if self._holds_back((one.topic, one.partition))}
        paused = set(consumer.paused())
        with if_still_ours():
            if wanted - paused:
                consumer.pause(*(wanted - paused))
            if paused - wanted:
                consumer.resume(*(paused - wanted))

    def _ready(self) -> list[Place]:
        """Places whose records can be handed over now."""
        if self._waiting >= WAITING:
            return []
        return [p for p, raws in self._kept.items() if raws and p in self.held.terms and p not in self._hold]

    def _holds_back(self, place: Place) -> bool:
        """Whether nothing more of a place should be fetched for now."""
        return self._waiting >= WAITING or place in self._hold or bool(self._kept.get(place))

    def _rebalance(self, consumer: KafkaConsumer, listener: _Listener, generation: int, had: set[Place]) -> int:
        """What came and what went; the generation that says so."""
        places: frozenset[Place] = frozenset()
        while listener.assignments:
            places = listener.assignments.popleft()
        metadata = consumer.group_metadata()
        before = self.held.terms
        kept = {place: term for place, term in before.items() if place in places}
        if metadata.generation_id != generation + 1:  # somebody else may have had them in between
            kept = {}
        if had & (places - set(kept)):
            raise _BackAgain
        had |= places
        self._kept = {place: raws for place, raws in self._kept.items() if place in places}
        marks = self._marks(consumer, places - set(kept)) if places - set(kept) else {}
        came = []
        for place, mark in sorted(marks.items()):
            self._terms += 1
            kept[place] = self._terms
            came.append(Assigned(place, mark, self._terms))
        gone = tuple(place for place in before if kept.get(place) != before[place])
        self.held = Held(dict(kept), metadata)
        self._deliver(WorkBatch(revoked=gone, assigned=tuple(came)))
        return int(metadata.generation_id)

    def _marks(self, consumer: KafkaConsumer, places: frozenset[Place]) -> dict[Place, Mark]:
        """Where the work goes on; the beginning when none was done. Transactions under way are waited for."""
        partitions = {place: TopicPartition(*place) for place in places}
        bound = round(self._settings.request_timeout * 1000)
        firsts = consumer.beginning_offsets(list(partitions.values()), timeout_ms=bound)
        marks = {}
        for place, partition in partitions.items():
            found, first = self._committed(consumer, partition), firsts[partition]
            if found is None or found.offset < 0:
                marks[place] = Mark(first)
                continue
            mark = from_text(found.offset, found.metadata)
            known = tuple(at for at in mark.done if at >= first)  # what retention took is done too
            marks[place] = mark if mark.next_offset >= first else Mark(first, known)
        return marks

    def _committed(self, consumer: KafkaConsumer, partition: TopicPartition) -> OffsetAndMetadata | None:
        ends_at = self._clock.now() + OPEN_TRANSACTION
        while True:
            try:
                return consumer.committed(partition, metadata=True, timeout_ms=2000)
            except KafkaTimeoutError:
                if self._clock.now() >= ends_at or self._stopping.is_set():
                    raise

    def _go(self, terms: Mapping[Place, int]) -> None:
        if terms:
            self.held = Held({})
            self._deliver(WorkBatch(revoked=tuple(terms)))

    def _hand_over(self, consumer: KafkaConsumer, polled: Mapping[TopicPartition, Sequence[RawRecord]]) -> None:
        for partition, raws in polled.items():
            self._kept.setdefault((partition.topic, partition.partition), deque()).extend(raws)
        items: list[WorkItem] = []
        for place in self._ready():
            raws = self._kept[place]
            items += [read_work(raws.popleft(), self._partitions) for _ in range(min(BATCH, len(raws)))]
        self.behind = {place: self._behind(consumer, place) for place in self.held.terms}
        if items:
            self._waiting += len(items)
            self._deliver(WorkBatch(tuple(items)))

    def _behind(self, consumer: KafkaConsumer, place: Place) -> int:
        partition = TopicPartition(*place)
        end = position = None
        with if_still_ours():
            end = consumer.highwater(partition)
            position = consumer.position(partition, timeout_ms=0) if end is not None else None
        return 0 if end is None or position is None else max(0, end - position)
