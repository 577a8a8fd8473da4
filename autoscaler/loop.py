"""The shell around `decide`: observe, decide, record, act. A recorded wish is the act: the allocator follows it.

An event only wakes the loop and says which model is dirty; the decision is made from the whole view of that model. More
requests than the last wish is good for are urgent; ordinary windows wait for the model's tick; quiet models wait for
their `again_at`. Everything runs on one event loop and in small slices, because a gateway may run beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from typing import Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import decide, hold
from autoscaler.core.model import Decision, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import Declared, ModelView, Wish
from autoscaler.fold import Fold
from autoscaler.inbox import Inbox
from autoscaler.record import wish_of
from autoscaler.settings import AutoscalerSettings
from events.clock import Clock
from events.log import Batch, EventLog, LogClosed, LogUnavailable, Position, Query, Start, Subscription
from events.names import Topic
from events.types.decisions import OwnershipTaken
from events.units import Instant
from events.urgency import is_urgent
from events.writer import EventWriter

_log: Final = logging.getLogger(__name__)

STATES: Final = (Topic.MODELS, Topic.DECISIONS, Topic.REPLICAS, Topic.GATEWAYS)
NEWS: Final = (Topic.REQUESTS, Topic.METRICS)

FOLD_SLICE: Final = 64
DECIDE_SLICE: Final = 32
"""Records folded, and models decided, before the event loop is let go: under a millisecond each on one core."""

FOLD_PART: Final = 8
"""When more wait than that many slices, this part of them is folded at once: folding must keep up with the reading."""

RECORDINGS_MOST: Final = 16
"""Appends in flight: an edge does not wait for the commit of what was decided before it. The log commits in groups."""

ORDINARY_MOST: Final = 2
"""Appends in flight beyond which only edges are decided: theirs should not stand behind many in the log."""

TRIES_COUNTED: Final = 20
"""Pauses stop doubling after this many tries at the latest."""

ALARM_MOST: Final = 3600.0
"""An alarm is set for at most so many seconds, and then again: timers of event loops overflow."""

GRAIN: Final = 0.02
"""Timers of quiet models are rounded up to this many seconds, so that one alarm serves many."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """How a model stands now: what a decision would see, the last decision, and the wish on record."""

    snapshot: Snapshot
    policy: ScalingPolicy
    decision: Decision | None
    wish: Wish | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the start."""

    models: int
    decided: int
    recorded: int
    policy_failures: int
    log_failures: int
    unreadable_declarations: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """A decision that is still to be recorded, with what it was taken from."""

    view: ModelView
    declared: Declared
    snapshot: Snapshot
    decision: Decision


class Autoscaler:
    """Owns the wishes of all models of partition 0, until another one takes them. Give `writer` its own source."""

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, settings: AutoscalerSettings) -> None:
        self._event_log = log
        self._clock = clock
        self._writer = writer
        self._settings = settings
        self._agenda = Agenda()
        self._fold = Fold(self._agenda, settings.tick, clock.now())
        self._wake = asyncio.Event()
        self._inbox = Inbox()
        self._folded = asyncio.Event()
        self._states_read = asyncio.Event()
        self._history_read = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = False
        self._read_to = clock.now()
        self._record_tries = 0
        self._recordings: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(RECORDINGS_MOST)
        self._failure: BaseException | None = None
        self._alarm: tuple[Instant, asyncio.Task[None]] | None = None
        self._decided = self._recorded = self._policy_failures = self._log_failures = 0

    # -- life

    async def start(self) -> None:
        """Take ownership, read the states, then decide. Returns when the first decisions may be taken.

        Past demand is read back meanwhile; until it is, wishes may rise and none falls. Raises LogUnavailable,
        LogClosed.
        """
        taken = OwnershipTaken(partition=0, owner=self._settings.owner)
        (position,) = await self._event_log.append([self._writer.envelope(taken)])
        self._fold.epoch = position.offset
        self._fold.live_from = await self._appended_at(position)
        states, news = self._fold_batch, self._take_news
        self._spawn(self._follow(STATES, lambda: Start("newest_per_key"), states, self._states_read.set))
        await self._until(self._states_read)
        self._fold.states_read()
        since = self._read_to = self._history_from()
        self._spawn(self._follow(NEWS, lambda: Start("time", self._read_to), news, lambda: self._on_history(since)))
        self._spawn(self._work())

    async def close(self) -> None:
        """Stop. What was recorded stands."""
        tasks, self._tasks = [*self._tasks, *self._recordings], []
        if self._alarm is not None:
            tasks.append(self._alarm[1])
            self._alarm = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait(self) -> None:
        """Return when the log was closed; raise what a task of this autoscaler has failed of."""
        await asyncio.gather(*self._tasks)

    # -- answers

    @property
    def deciding(self) -> bool:
        """Whether this autoscaler decides: it has read the states, and nobody has taken ownership from it."""
        return self._states_read.is_set() and self._fold.lost_to is None

    @property
    def history_read(self) -> bool:
        """Whether past demand has been read back, so that wishes may fall."""
        return self._history_read.is_set()

    async def wait_history_read(self) -> None:
        """Return once past demand has been read back."""
        await self._history_read.wait()

    def missing(self) -> Sequence[str]:
        """What keeps it from deciding, a sentence each."""
        if self._fold.lost_to is not None:
            return [f"the autoscaler does not decide: {self._fold.lost_to} has taken ownership"]
        return [] if self._states_read.is_set() else ["the autoscaler has not read the states yet"]

    def view(self, model: str) -> ModelReport | None:
        """How a model stands now; None when it is not declared."""
        view = self._fold.models.get(model)
        snapshot = None if view is None else view.snapshot(self._clock.now(), self._fold.world)
        if view is None or view.declared is None or snapshot is None:
            return None
        return ModelReport(snapshot, view.declared.policy, view.last, view.wish)

    def signalled(self) -> Iterator[tuple[str, ScalingPolicy]]:
        """The models that are decided here and declare signals, with their policies."""
        if self.deciding:
            for view in self._fold.models.values():
                declared = view.declared
                if declared is not None and declared.policy.signals and not declared.deleted:
                    yield view.model, declared.policy

    def statistics(self) -> Statistics:
        """Counts since the start."""
        return Statistics(
            models=len(self._fold.models),
            decided=self._decided,
            recorded=self._recorded,
            policy_failures=self._policy_failures,
            log_failures=self._log_failures,
            unreadable_declarations=self._fold.unreadable,
        )

    # -- observe

    async def _appended_at(self, position: Position) -> Instant:
        """The log's time of a record; that of our clock if it is gone already."""
        query = Query(position.topic, position.partition, from_offset=position.offset, limit=1)
        async for record in self._event_log.read(query):
            return record.appended_at
        return self._clock.now()

    async def _follow(
        self,
        topics: Sequence[str],
        start: Callable[[], Start],
        take: Callable[[Batch], Coroutine[None, None, None]],
        caught_up: Callable[[], None],
    ) -> None:
        """Take what the topics say until the log is closed; a log that fails is asked again."""
        tries = 0
        while not self._ended:
            try:
                async with _closing(self._event_log.subscribe(topics, start())) as subscription:
                    async for batch in subscription:
                        tries = 0
                        await take(batch)
                        if batch.caught_up:
                            caught_up()
                self._ended = True
            except LogClosed:
                self._ended = True
            except LogUnavailable as error:
                tries = min(tries + 1, TRIES_COUNTED)
                await self._pause(tries, error)
        self._wake.set()

    async def _fold_batch(self, batch: Batch) -> None:
        records = batch.records
        for begin in range(0, len(records), FOLD_SLICE):
            now = self._clock.now()
            for record in records[begin : begin + FOLD_SLICE]:
                self._fold.take(record, now)
            self._wake.set()
            if begin + FOLD_SLICE < len(records):
                await asyncio.sleep(0)

    async def _take_news(self, batch: Batch) -> None:
        """History is folded in its order; later, an edge is folded before the rest, which waits in the inbox."""
        if not self.history_read:
            await self._fold_batch(batch)
        else:
            now = self._clock.now()
            for record in batch.records:
                if is_urgent(record.envelope.data):
                    for one in self._inbox.with_all_before(record):
                        self._fold.take(one, now)
                else:
                    self._inbox.put(record)
            await self._decide_edges()
            self._wake.set()
            await asyncio.sleep(0)
            while self._inbox.full and not self._ended:
                self._folded.clear()
                await self._folded.wait()
        if batch.records:
            self._read_to = batch.records[-1].appended_at

    def _fold_some(self) -> None:
        """A slice of what waits."""
        if self._inbox:
            now = self._clock.now()
            for record in self._inbox.take(max(FOLD_SLICE, len(self._inbox) // FOLD_PART)):
                self._fold.take(record, now)
            self._folded.set()

    def _on_history(self, since: Instant) -> None:
        if not self.history_read:
            self._fold.history_read(since, self._clock.now())
            self._history_read.set()
            self._wake.set()

    def _history_from(self) -> Instant:
        """As far back as any model's demand matters, within the bound."""
        policies = [view.declared.policy for view in self._fold.models.values() if view.declared is not None]
        longest = max(
            (max(policy.stable_window, policy.keep_alive) for policy in policies), default=self._settings.read_back_most
        )
        return Instant(self._clock.now() - min(longest, self._settings.read_back_most))

    # -- decide

    async def _work(self) -> None:
        """Decide what is dirty and due, slice by slice; wait when nothing is. Ends when the log is closed."""
        while not self._ended:
            if self._failure is not None:
                raise self._failure
            self._fold_some()
            await self._decide_edges()
            if self._fold.lost_to is None and self._ordinary():
                await self._decide_all(self._agenda.take(self._clock.now(), DECIDE_SLICE))
            next_at = self._next_at()
            if self._inbox or (next_at is not None and next_at <= self._clock.now()):
                await asyncio.sleep(0)
            else:
                await self._rest(next_at)
        self._folded.set()  # nobody folds any more

    def _ordinary(self) -> bool:
        """Whether what is no edge may be decided now."""
        return len(self._recordings) < ORDINARY_MOST

    def _next_at(self) -> Instant | None:
        """When there is something to decide; None: not before something happens."""
        if self._fold.lost_to is not None:
            return None
        if self._ordinary():
            return self._agenda.next_at()
        return Instant(0.0) if self._agenda.has_edges else None

    async def _decide_edges(self) -> None:
        """Some of them; whoever calls this comes again."""
        if self._fold.lost_to is None and self._agenda.has_edges:
            await self._decide_all(self._agenda.take_edges(DECIDE_SLICE))

    async def _decide_all(self, models: Sequence[str]) -> None:
        """Decide these, and have recorded what must be."""
        now = self._clock.now()
        taken = [self._decide(model, now) for model in models]
        to_record = [one for one in taken if one is not None]
        if to_record:
            await self._room.acquire()
            record = asyncio.create_task(self._record(to_record))
            self._recordings.add(record)
            record.add_done_callback(self._recorded_or_failed)

    def _decide(self, model: str, now: Instant) -> _Taken | None:
        """Decide one model. Returns what must be recorded before it counts."""
        view = self._fold.models.get(model)
        if view is not None and view.recording:
            view.dirty = True
            return None
        snapshot = None if view is None else view.snapshot(now, self._fold.world)
        if view is None or view.declared is None or snapshot is None:
            return None
        decision = self._decision(snapshot, view.declared.policy, now)
        self._decided += 1
        taken = _Taken(view, view.declared, snapshot, decision)
        record_at = view.record_at(decision, now, self._settings.reasons_every)
        if record_at == now:
            view.recording = True  # decided again only when this is on record
            return taken
        self._stand(taken, now)
        if record_at is not None:
            self._agenda.at(model, record_at)
        return None

    def _decision(self, snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        try:
            return decide(snapshot, policy, now)
        except Exception:  # noqa: BLE001 - a policy's bug must not stop the loop for the other models
            self._policy_failures += 1
            _log.exception("policy %s failed for %s; its last wish stands", policy.name, snapshot.model)
            return hold(snapshot, policy, now, Reason.POLICY_FAILED)

    def _stand(self, taken: _Taken, now: Instant) -> None:
        """The decision stands: it is on record, or says nothing new."""
        if taken.declared.deleted:
            self._fold.forget(taken.view.model)
            return
        taken.view.decided(taken.decision, now)
        self._look_again(taken.view, taken.decision)

    def _look_again(self, view: ModelView, decision: Decision) -> None:
        if decision.again_at is not None:
            self._agenda.at(view.model, Instant(ceil(decision.again_at / GRAIN) * GRAIN))

    # -- record, act

    async def _record(self, taken: Sequence[_Taken]) -> None:
        """Append the wishes; only then do they count. If the log fails, all is decided anew after a pause."""
        envelopes = [
            self._writer.envelope(
                wish_of(one.snapshot, one.declared.policy, one.decision), cause=one.view.cause, epoch=self._fold.epoch
            )
            for one in taken
        ]
        try:
            await self._event_log.append(envelopes)
        except LogUnavailable as error:
            self._record_tries = min(self._record_tries + 1, TRIES_COUNTED)
            await self._pause(self._record_tries, error)
            for one in taken:
                one.view.recording, one.view.dirty, one.view.unsure = False, False, True
                self._agenda.urgent(one.view.model)
            return
        self._record_tries = 0
        self._recorded += len(taken)
        now = self._clock.now()
        for one in taken:
            self._on_record(one, now)

    def _on_record(self, one: _Taken, now: Instant) -> None:
        """A wish is on record: it counts, unless its model was declared anew meanwhile."""
        view = one.view
        dirty, view.recording, view.dirty = view.dirty, False, False
        if self._fold.models.get(view.model) is view and view.is_of(one.declared.uid):
            view.recorded(one.decision, one.declared, now)
            self._stand(one, now)
        else:
            dirty = True
        if dirty:
            self._agenda.urgent(view.model)

    def _recorded_or_failed(self, record: asyncio.Task[None]) -> None:
        """A recording has ended: there is room for another, and work for models that changed meanwhile."""
        self._recordings.discard(record)
        self._room.release()
        error = None if record.cancelled() else record.exception()
        if isinstance(error, LogClosed):
            self._ended = True
        elif error is not None:
            self._failure = error
        self._wake.set()

    # -- waiting

    async def _rest(self, until: Instant | None) -> None:
        """Wait until woken, or until that instant."""
        self._wake.clear()
        if until is not None:
            until = min(until, Instant(self._clock.now() + ALARM_MOST))
        if until is not None and (self._alarm is None or until < self._alarm[0]):
            if self._alarm is not None:
                self._alarm[1].cancel()
            self._alarm = (until, asyncio.create_task(self._ring_at(until)))
        await self._wake.wait()

    async def _ring_at(self, instant: Instant) -> None:
        await self._clock.sleep_until(instant)
        self._alarm = None
        self._wake.set()

    async def _pause(self, tries: int, error: LogUnavailable) -> None:
        """Wait before the log is tried again."""
        self._log_failures += 1
        settings = self._settings
        seconds = min(settings.retry_most, settings.retry_first * 2 ** (tries - 1))
        _log.warning("the event log failed (%s); trying again in %.1f s", error, seconds)
        await self._clock.sleep_until(Instant(self._clock.now() + seconds))

    async def _until(self, event: asyncio.Event) -> None:
        """Wait for `event`, or raise what the tasks it depends on have failed of."""
        waiter = asyncio.create_task(event.wait())
        try:
            await asyncio.wait([waiter, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise LogClosed("the log was closed while the autoscaler started")
        finally:
            waiter.cancel()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work))


@asynccontextmanager
async def _closing(subscription: Subscription) -> AsyncIterator[Subscription]:
    try:
        yield subscription
    finally:
        await subscription.close()
