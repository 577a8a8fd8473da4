"""The client's thread of a member of a group: partitions come and go, and offsets are committed after the effect."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.structs import MemberState

from events.adapters.kafka.client import Admin, Membership, make_member, told
from events.adapters.kafka.follower import BATCH, CLOSING, Delivery, Follower, Plan, Polled
from events.adapters.kafka.joining import PATIENCE, Session, if_still_ours, joining, subscribe
from events.adapters.kafka.opening import Opener
from events.adapters.kafka.predecessors import dismiss
from events.adapters.kafka.scan import Scan
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.wire import RawRecord
from events.adapters.store import Place
from events.log import LogClosed, LogUnavailable, Record

logger = logging.getLogger(__name__)

TURN: Final = 100
"""Milliseconds of one poll of a member: so long may a commit wait."""

TRIES: Final = 200
"""How often a commit is tried during a rebalance, a turn apart; then LogUnavailable."""

PASS_EVERY: Final = 2.0
"""Seconds between commits past records that were delivered to nobody."""

JOINING: Final = 40.0
"""Seconds that joining may take: a rebalance waits for other members for 30 s at most (`max_poll_interval_ms`)."""

SETTLED: Final = 0.3
"""Seconds for which a member has been stable without a partition before it says that it has none."""

_REBALANCING = (CommitFailedError, RebalanceInProgressError, IllegalGenerationError, UnknownMemberIdError)


@dataclass(slots=True)
class _Commit:
    """Offsets to be committed, and who waits for it."""

    offsets: Mapping[Place, int]
    done: Future[None]
    tries: int = 0


@dataclass(slots=True)
class _Progress:
    """Of one place: its first record for us, what was delivered, what is committed (offsets of the next record)."""

    first: int | None = None
    delivered: int = 0
    committed: int = 0


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Only notes what happens: it is called in the client's IO thread, where waiting would stop the heartbeats."""

    def __init__(self) -> None:
        self.changes: deque[tuple[bool, tuple[Place, ...]]] = deque()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.changes.append((True, tuple((one.topic, one.partition) for one in assigned)))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.changes.append((False, tuple((one.topic, one.partition) for one in revoked)))


class Member(Follower):
    """See `Follower`. `commit` is called by the loop."""

    def __init__(
        self, settings: KafkaSettings, admin: Admin, plan: Plan, opener: Opener,
        deliver: Callable[[Follower, Delivery], None],
    ) -> None:  # fmt: skip
        super().__init__(settings, admin, plan, opener, deliver)
        self._waiting: deque[_Commit] = deque()
        self._progress: dict[Place, _Progress] = {}
        self._stable_at = self._stable_since = self._clock.now()
        self._pass_at = self._stable_at + PASS_EVERY
        self._session_timeout = Session(settings.session_timeout)
        self._name = settings.client_id

    def commit(self, offsets: Mapping[Place, int]) -> Future[None]:
        """Let the group go on at `offsets`. Done when Kafka has them; those of places that are gone are left out."""
        commit = _Commit(offsets, Future())
        commit.done.set_running_or_notify_cancel()
        with self._changed:
            if self.ended.done():
                commit.done.set_exception(LogClosed("the subscription is closed"))
            else:
                self._waiting.append(commit)
        return commit.done

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            with self._changed:
                for commit in self._waiting:
                    commit.done.set_exception(LogClosed("the subscription is closed"))
                self._waiting.clear()

    def _begin(self) -> bool:
        return super()._begin() and self._dismiss()

    def _dismiss(self) -> bool:
        """Take what an earlier process of our name left in the group out of it; False when stopped meanwhile."""
        identity, group = self._settings.identity(), self._plan.group or ""
        if identity:
            self._name = f"{self._settings.client_id}/{identity}"
            try:
                work = self._admin.submit(lambda c: dismiss(c, group, self._name), self._settings.request_timeout)
                if work.result():
                    logger.info("%s was left in %s by a process that died", self._name, group)
            except LogUnavailable as error:  # its session ends in any case
                logger.info("nobody was taken out of %s: %s", group, error)
        return not self._stopping.is_set()

    def _session(self) -> None:
        group = self._plan.group or ""
        with self._session_timeout.asked(group):
            self._belong(Membership(group, self._name, self._session_timeout.seconds))

    def _belong(self, how: Membership) -> None:
        """Be a member until stopped, or an error ends it."""
        listener = _Listener()
        consumer = make_member(self._settings, how, self._plan.start.partitions)
        try:
            subscribe(consumer, self._plan.topics, self._plan.partitions, listener)
            while not self._stopping.is_set():
                self._commit(consumer)
                self._hold_back(consumer)
                patience = PATIENCE if joining(consumer) else TURN
                polled = consumer.poll(timeout_ms=patience, max_records=BATCH)
                self._rebalance(consumer, listener)
                self._handle(consumer, self._of_ours(polled))
                self._check_membership(consumer)
        finally:
            if self._waiting:
                self._commit(consumer)
            consumer.close(autocommit=False, timeout_ms=CLOSING)
            self._rebalance(consumer, listener)
            self._let_go(tuple(self._progress))

    def _check_membership(self, consumer: KafkaConsumer) -> None:
        """A member that is stuck in joining leaves and joins anew."""
        now = self._clock.now()
        if consumer.group_metadata().state == MemberState.STABLE:
            self._stable_at = now
            if not self._progress and not self._told_caught_up and now - self._stable_since > SETTLED:
                self._told_caught_up = True  # of nothing: others have all there is, or it comes in the next round
                self._send(Delivery(caught_up=True))
            return
        self._stable_since = now
        if now - self._stable_at > JOINING:
            self._stable_at = now
            raise KafkaTimeoutError(f"not a stable member of {self._plan.group} for {JOINING:.0f} s")

    def _of_ours(self, polled: Polled) -> Polled:
        """Records of partitions that are held now."""
        ours: dict[TopicPartition, Sequence[RawRecord]] = {}
        for partition, raws in polled.items():
            progress = self._progress.get((partition.topic, partition.partition))
            if progress is not None:
                ours[partition] = raws
                progress.first = raws[0].offset if progress.first is None else progress.first
        return ours

    def _hold_back(self, consumer: KafkaConsumer) -> None:
        """Pause while the loop is behind; polls go on, or the group would think that this member is stuck."""
        with if_still_ours():
            if self._room(0):
                consumer.resume(*consumer.paused())
            else:
                consumer.pause(*consumer.assignment())

    def _rebalance(self, consumer: KafkaConsumer, listener: _Listener) -> None:
        while listener.changes:
            came, places = listener.changes.popleft()
            if came:
                self._take_up(consumer, tuple(place for place in places if place not in self._progress))
            else:
                self._let_go(tuple(place for place in places if place in self._progress))

    def _take_up(self, consumer: KafkaConsumer, places: tuple[Place, ...]) -> None:
        if not places:
            return
        for place in places:
            self._progress[place] = _Progress()
            self._positions.pop(place, None)
            newest = self._plan.start.at == "newest_per_key"
            if newest and consumer.committed(TopicPartition(*place), timeout_ms=CLOSING) is None:
                self._scans[place] = Scan()
        self._told_caught_up = False
        self._works()
        self._send(Delivery(assigned=places))

    def _let_go(self, places: tuple[Place, ...]) -> None:
        if not places:
            return
        for place in places:
            del self._progress[place]
            self._scans.pop(place, None)
        self._send(Delivery(revoked=places))

    def _hand_over(self, records: Iterable[Record]) -> None:
        found = list(records)
        for record in found:
            place = (record.position.topic, record.position.partition)
            self._progress[place].delivered = max(self._progress[place].delivered, record.position.offset + 1)
        super()._hand_over(found)

    # Commits.

    def _commit(self, consumer: KafkaConsumer) -> None:
        with self._changed:
            waiting = list(self._waiting)
            self._waiting.clear()
        offsets = self._wanted(waiting) if waiting else self._passed()
        try:
            if offsets:
                self._commit_now(consumer, offsets)
        except _REBALANCING as error:
            self._again(waiting, error)
        except (KafkaError, OSError) as error:
            for commit in waiting:
                commit.done.set_exception(LogUnavailable(told(self._settings, error)))
        else:
            for commit in waiting:
                commit.done.set_result(None)

    def _commit_now(self, consumer: KafkaConsumer, offsets: Mapping[Place, int]) -> None:
        wanted = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        consumer.commit(wanted, timeout_ms=round(self._settings.request_timeout * 1000))
        for place, offset in offsets.items():
            self._progress[place].committed = offset

    def _wanted(self, waiting: Iterable[_Commit]) -> dict[Place, int]:
        """The highest of each place that is still held; no offset moves back."""
        offsets: dict[Place, int] = {}
        for commit in waiting:
            for place, offset in commit.offsets.items():
                progress = self._progress.get(place)
                if progress is not None and offset > max(progress.committed, offsets.get(place, 0)):
                    offsets[place] = offset
        return offsets

    def _passed(self) -> dict[Place, int]:
        """Where all that was delivered is committed, and what came after was delivered to nobody (strays, letters)."""
        now = self._clock.now()
        if now < self._pass_at:
            return {}
        self._pass_at = now + PASS_EVERY
        offsets: dict[Place, int] = {}
        for place, progress in self._progress.items():
            position = self._positions.get(place)
            if position is None or progress.first is None:
                continue
            if progress.delivered <= progress.committed and position > max(progress.committed, progress.first):
                offsets[place] = position
        return offsets

    def _again(self, waiting: Iterable[_Commit], error: KafkaError) -> None:
        """After the rebalance, for what is still held then."""
        for commit in waiting:
            commit.tries += 1
            if commit.tries > TRIES:
                commit.done.set_exception(LogUnavailable(told(self._settings, error)))
            else:
                with self._changed:
                    self._waiting.append(commit)
