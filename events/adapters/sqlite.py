"""The log in an SQLite file: what `relume up` uses.

*Durable.* An append returns when its transaction is committed to the write-ahead log (WAL, ``synchronous=NORMAL``). It
survives the death of the process at any point, ``kill -9`` included, with every acknowledged event there exactly once
and in order. A power cut or a crash of the kernel leaves a sound file, but may lose the last commits: those since the
last checkpoint, which is made after a second without work, every 5 s and every 4 MiB of work.

*Full disk.* Appends raise LogUnavailable; offers wait up to their bound, then are dropped and counted; both go on by
themselves once there is space. The file does not shrink: what is forgotten makes room for what comes.

*Once.* An event whose (source, id) stands in the file is not written again, so an event is known again for as long as
retention keeps it.

*Order.* Appends of one caller keep their order, and so do offers; appends overtake waiting offers, and urgent offers
(`events.urgency`) overtake both, though never an offer of their own key. When many offers wait, ordinary windows are
refused: whoever tells them merges them into the next, so that they are told more rarely instead of ever later.

*Retention* counts for each partition: rows older than the age, and the oldest beyond the bytes, are forgotten; of state
topics the newest row of each key is kept for ever. One process at a time, by a lock on ``PATH.lock``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from events.adapters.hub import Hub
from events.adapters.local_work import LocalWork, places_of
from events.adapters.opened import OpenedLog, answer_all
from events.adapters.sqlite_file import FileLock
from events.adapters.sqlite_reader import Page, SqliteReader
from events.adapters.sqlite_tables import Marks
from events.adapters.sqlite_work import Append, Commit, Outcome
from events.adapters.sqlite_writer import SqliteSettings, Writer
from events.adapters.store import Chunk, Place
from events.clock import Clock
from events.codec import Ignored
from events.dead_letters import letter
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogStats, LogUnavailable, Position, Query, Record, Start, Subscription
from events.payload import kind_of
from events.units import Instant
from events.urgency import is_urgent, is_window
from events.work import Mark, WorkQueue

__all__ = ["SqliteEventLog", "SqliteSettings"]

PAGE: Final = 256
"""Rows that one step of `read` takes: about 10 ms of the reader's thread."""

CLOSING: Final = 30.0
"""Longest wait, in seconds, for what waits to be written when the log is closed."""

_Answer = asyncio.Future[tuple[Position, ...]]


class SqliteEventLog(OpenedLog):
    """See `events.log.EventLog`. An async context manager; or call `open` and `close`. Belongs to one loop."""

    def __init__(self, path: Path, clock: Clock, settings: SqliteSettings | None = None) -> None:
        super().__init__(clock)
        self._path = path
        self._settings = settings or SqliteSettings()
        self._lock = FileLock(path)
        self._writer = Writer(path, clock, self._settings, self._tell)
        self._reader = SqliteReader(path)
        self._hub = Hub(self, self._settings.partitions, self._settings.subscriber_bound)
        self._answers: dict[int, _Answer] = {}
        self._tokens = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = False
        self._offers_waiting = 0
        self._waiting_by_key: dict[str, int] = {}  # of offers that are not in the urgent lane
        self._appends_waiting = 0
        self.trouble = ""
        """Why the last transaction failed; empty when it was written."""

    async def open(self) -> None:
        """Make or open the file. Raises LogInUse, LogCorrupt, LogUnavailable, each with what to do."""
        self._loop = asyncio.get_running_loop()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise LogUnavailable(f"{self._path} cannot be opened: {error}") from error
        self._writer.start()
        try:
            end = await asyncio.wrap_future(self._writer.opened)
            await self._reader.open()
        except BaseException:
            self._writer.stop()
            self._reader.abandon()
            self._lock.release()
            raise
        asyncio.wrap_future(self._writer.closed).add_done_callback(self._writer_ended)
        self._hub.start_at(end)
        self._open = True

    async def close(self) -> None:
        """Write what waits, end subscriptions, close the file. Calls after this raise LogClosed."""
        if not self._open:
            return
        self._open = False
        self._writer.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(self._writer.closed), CLOSING)
        self._hub.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LogClosed("the log was closed"))
        self._counters.dropped += self._offers_waiting
        self._offers_waiting = 0
        await self._reader.close()
        if self._writer.closed.done():
            self._lock.release()

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """See the port. Also raises Unencodable, for an event that is no event or too large."""
        for event in events:
            kind_of(event.data)
        if self._appends_waiting + len(events) > self._settings.append_bound:
            raise LogUnavailable(f"{self._appends_waiting} appended events wait to be written; no more may")
        self._appends_waiting += len(events)
        try:
            return await self._submit(Append(next(self._tokens), tuple(events)))
        finally:
            self._appends_waiting -= len(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See the port."""
        if not self._open or self._offers_waiting >= self._settings.offer_bound:
            self._counters.dropped += 1
            return False
        urgent = is_urgent(envelope.data)
        if self._offers_waiting >= self._settings.window_bound and not urgent and is_window(envelope.data):
            self._counters.put_off += 1
            return False
        self._offers_waiting += 1
        self._counters.offered += 1
        key = envelope.key
        waiting = self._waiting_by_key.get(key, 0)
        if urgent and not waiting:
            self._writer.offer_first(envelope)
        else:
            self._waiting_by_key[key] = waiting + 1
            self._writer.offer(envelope)
        return True

    async def read(self, query: Query) -> AsyncIterator[Record]:
        """See the port."""
        self._check_open()
        partitions = range(self._settings.partitions) if query.partition is None else (query.partition,)
        left = query.limit
        for partition in partitions:
            if left == 0:
                return
            async for record in self._read_place((str(query.topic), partition), query):
                if left == 0:
                    return
                yield record
                left = None if left is None else left - 1

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        """See the port."""
        self._check_open()
        return self._hub.subscribe(topics, start, group)

    def work(self, topics: Sequence[str], group: str, member: str) -> WorkQueue:
        """See `events.work.WorkLog`."""
        del member  # the only one
        bell = self.subscribe(topics, Start("end"))
        return LocalWork(self, places_of(topics, self._settings.partitions), group, bell)

    async def lag(self, group: str) -> Mapping[Place, int]:
        """See the port."""
        self._check_open()
        return await self._reader.lag(group)

    def stats(self) -> LogStats:
        """Counts since the log was opened."""
        return self._counters.stats(self._offers_waiting + self._appends_waiting)

    # The store of subscriptions.

    async def follow(self, place: Place, offset: int, limit: int) -> Chunk:
        self._check_open()
        return self._sort_out(await self._reader.follow(place, offset, limit))

    async def newest(self, place: Place, offset: int, limit: int) -> Chunk:
        self._check_open()
        return self._sort_out(await self._reader.newest(place, offset, limit))

    async def offset_at(self, place: Place, time: Instant) -> int:
        del place  # the time of append never goes back over all places of this log
        self._check_open()
        return await self._reader.offset_at(time)

    async def committed(self, group: str) -> Mapping[Place, int]:
        self._check_open()
        return await self._reader.committed(group)

    async def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        await self._submit(Commit(next(self._tokens), group, dict(offsets)))

    async def marks(self, group: str) -> Mapping[Place, Mark]:
        self._check_open()
        return await self._reader.marks(group)

    async def settle(self, group: str, events: Sequence[AnyEnvelope], marks: Mapping[Place, Mark]) -> None:
        await self._submit(Append(next(self._tokens), tuple(events), Marks(group, dict(marks))))

    # Inside.

    def _check_open(self) -> None:
        if not self._open or self._writer.closed.done():
            raise LogClosed("the log is not open")

    def _writer_ended(self, _: asyncio.Future[None]) -> None:
        """After close nobody waits any more; before, the writer fell over a fault of its own."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LogUnavailable(f"{self._path}: the writer stopped; see its error"))

    async def _submit(self, work: Append | Commit) -> tuple[Position, ...]:
        self._check_open()
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._answers[work.token] = answer
        self._writer.submit(work)
        try:
            async with asyncio.timeout(self._settings.append_timeout):
                return await answer
        except TimeoutError as error:
            raise LogUnavailable(f"{self._path}: not durable within {self._settings.append_timeout} s") from error
        finally:
            self._answers.pop(work.token, None)

    async def _read_place(self, place: Place, query: Query) -> AsyncIterator[Record]:
        offset = query.from_offset or 0
        if query.from_time is not None:
            offset = max(offset, await self._reader.offset_at(query.from_time))
        end = self._hub.end(place)
        step = self.newest if query.newest_per_key else self.follow
        more = True
        while more:
            chunk = await step(place, offset, PAGE)
            for record in chunk.records:
                if record.position.offset >= end and not query.newest_per_key:
                    return
                yield record
            offset, more = chunk.next_offset, chunk.more

    def _sort_out(self, page: Page) -> Chunk:
        """Count what was not readable and tell the dead letters of it: the log keeps one letter of each."""
        for fault in page.faults:
            if isinstance(fault.found, Ignored):
                self._counters.ignored += 1
            else:
                self._counters.rejected += 1
                self.offer(letter(fault.found, fault.position.topic, fault.raw, self._clock.now(), fault.position))
        return page.chunk

    def _settle(self, key: str) -> None:
        left = self._waiting_by_key[key] - 1
        if left:
            self._waiting_by_key[key] = left
        else:
            del self._waiting_by_key[key]

    def _tell(self, outcome: Outcome) -> None:
        """Called by the writer's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed before the log: nobody is left to tell
                self._loop.call_soon_threadsafe(self._take, outcome)

    def _take(self, outcome: Outcome) -> None:
        """Subscriptions hear of the records first, then the appenders of theirs."""
        counters = self._counters
        counters.appended += len(outcome.records)
        counters.duplicates += outcome.duplicates
        counters.rejected += outcome.unencodable
        counters.commits += not outcome.failed
        counters.failures += outcome.failed
        self._offers_waiting -= len(outcome.offers) + outcome.urgent
        for key in outcome.offers:
            self._settle(key)
        self.trouble = outcome.trouble
        self._hub.publish(outcome.records)
        answer_all(self._answers, outcome.answers)
