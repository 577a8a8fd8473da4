"""The writer thread of the SQLite log: the only one that writes.

It takes what waits, writes it in one transaction (group commit), and tells the loop once. Urgent offers go first, then
appends, then other offers: a flood of news does not delay a decision, nor a flood of decisions an edge. When nothing
waits it brings the WAL into the file and forgets old rows.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from events.adapters.sqlite_file import connect, connect_writer, prepare
from events.adapters.sqlite_tables import ROWS, Row, Tables
from events.adapters.sqlite_work import Append, Commit, Group, Outcome
from events.clock import Clock
from events.codec import MAX_EVENT_BYTES, Unencodable, encode_structured
from events.envelope import AnyEnvelope
from events.log import EventLogError, LogUnavailable, Position, Record, Retention
from events.partitions import partition_of
from events.payload import SERIALIZERS_RAISE, kind_of, refused
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

GROUP: Final = ROWS
"""Events of one transaction, about: an append is never split. What comes meanwhile waits for these, about 5 ms. So many
are one statement, which wins the interpreter's lock back once."""

CHECKPOINT_BYTES: Final = 4 << 20  # of events written since the last checkpoint: SQLite's own default is 1,000 pages
CHECKPOINT_EVERY: Final = 5.0  # seconds between checkpoints while something is written: what a power cut may take
WAL_BYTES: Final = 64 << 20  # a WAL of this size is emptied even if appends must wait for it
SETTLED: Final = 1.0  # seconds without work after which the WAL is brought into the file
RETRY_FIRST: Final = 0.05  # seconds until a failed group of offers is tried again; doubled up to RETRY_MOST
RETRY_MOST: Final = 1.0


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """What the SQLite log can be told. Bounds are in events unless they say bytes."""

    partitions: int = 1
    """Partitions of each topic; fixed when the file is made."""
    retention: Retention = field(default_factory=Retention)
    """What may be forgotten of a partition of any topic that `retention_of` does not name."""
    retention_of: Mapping[str, Retention] = field(default_factory=dict)
    """By topic."""
    offer_bound: int = 65_536
    """Offers that may wait; further ones are dropped and counted."""
    window_bound: int = 1024
    """Offers that may wait before ordinary windows are refused, for their gateway to merge: under 0.1 s of writing."""
    append_bound: int = 65_536
    """Appended events that may wait; a further append raises LogUnavailable."""
    subscriber_bound: int = 4096
    """Records that wait in memory for one subscriber; beyond, it reads them from the file."""
    append_timeout: Seconds = Seconds(30.0)
    """Longest wait for an append to be durable; then LogUnavailable (it may still be written: append it again)."""
    sweep_every: Seconds = Seconds(60.0)
    """How often what may be forgotten is looked for."""
    max_event_bytes: int = MAX_EVENT_BYTES
    max_file_bytes: int | None = None
    """The file never grows beyond this (its WAL comes on top); appends then fail until something is forgotten."""


class Writer:
    """Started once. `submit` and `offer` are called on the loop's thread; `tell` must be safe to call from this one."""

    def __init__(self, path: Path, clock: Clock, settings: SqliteSettings, tell: Callable[[Outcome], None]) -> None:
        self._path = path
        self._clock = clock
        self._settings = settings
        self._tell = tell
        self._work: deque[Append | Commit] = deque()
        self._urgent: deque[AnyEnvelope] = deque()
        self._offers: deque[AnyEnvelope] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = False
        self._stopping = False
        self._tables: Tables | None = None
        self._thread = threading.Thread(target=self._run, name="relume-log-writer", daemon=True)
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="relume-log-keeper")
        self._checkpoint: Future[None] | None = None
        self._unchecked = 0  # bytes of events since the last checkpoint
        self._checked_at = 0.0
        self._sweeping = True
        self._swept_at = 0.0
        self._retry: float | None = None
        self._failing = False
        self.opened: Future[int] = Future()
        """The next offset once the file is open, or why it could not be opened."""
        self.closed: Future[None] = Future()
        """Done when everything is written, or given up, and the file is closed."""
        for future in (self.opened, self.closed):
            future.set_running_or_notify_cancel()  # whoever stops waiting cancels neither

    def start(self) -> None:
        """Open the file in the thread; see `opened`."""
        self._thread.start()

    def submit(self, work: Append | Commit) -> None:
        """Write as soon as can be; the outcome names the token."""
        self._work.append(work)
        self._ring()

    def offer(self, envelope: AnyEnvelope) -> None:
        """Write when the appends are written."""
        self._offers.append(envelope)
        self._ring()

    def offer_first(self, envelope: AnyEnvelope) -> None:
        """Write before all that waits."""
        self._urgent.append(envelope)
        self._ring()

    def stop(self) -> None:
        """Write what waits, then close; see `closed`."""
        self._stopping = True
        self._bell.put(None)

    def _ring(self) -> None:
        # The thread clears the flag before it looks for work, so work put down before a set flag is seen is found.
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    # The thread.

    def _run(self) -> None:
        try:
            self._tables = Tables(prepare(self._path, self._settings.partitions, self._settings.max_file_bytes))
        except (EventLogError, sqlite3.Error) as error:
            self._keeper.shutdown()
            self.opened.set_exception(error)
            return
        self.opened.set_result(self._tables.next_offset)
        try:
            while not self._stopping:
                self._await_work()
                self._write_all()
            self._write_all()
        finally:
            self._shut()

    def _write_all(self) -> None:
        while self._work or self._offers or self._urgent:
            if not self._write_group() and not self._work:
                return  # the offers wait for another try
        self._retry = None

    def _await_work(self) -> None:
        """Wait for work, and use the waiting for upkeep: at most one small step at a time."""
        try:
            self._bell.get(timeout=self._patience())
        except queue.Empty:
            if self._retry is None:
                self._keep_up()
        self._rung = False

    def _patience(self) -> float:
        if self._retry is not None:
            return self._retry
        if self._sweeping:
            return 0.001  # in the middle of forgetting: let appends in between two steps
        return SETTLED if self._unchecked else self._settings.sweep_every

    def _write_group(self) -> bool:
        """One transaction; False when it failed."""
        group, outcome = self._gather(), Outcome()
        self._encode(group, outcome)
        try:
            self._store(group, outcome)
        except sqlite3.Error as error:
            self._fail(group, outcome, error)
        self._tell(outcome)
        return not outcome.failed

    def _gather(self) -> Group:
        group, count = Group(), 0
        while self._urgent and count < GROUP:
            group.urgent.append(self._urgent.popleft())
            count += 1
        while self._work and count < GROUP:
            work = self._work.popleft()
            if isinstance(work, Commit):
                group.commits.append(work)
                count += 1
            else:
                group.appends.append((work, 0))
                count += len(work.events)
        while self._offers and count < GROUP:
            group.offers.append(self._offers.popleft())
            count += 1
        return group

    def _encode(self, group: Group, outcome: Outcome) -> None:
        """Turn events into rows. An append that cannot be encoded is answered so, whole; an offer is left out."""
        appends, group.appends = group.appends, []
        for append, _ in appends:
            try:
                rows = [self._row(event) for event in append.events]
            except Unencodable as error:
                outcome.answers.append((append.token, error))
                continue
            group.appends.append((append, len(group.rows)))
            group.rows += rows
            group.events += append.events
        for event in (*group.urgent, *group.offers):
            try:
                group.rows.append(self._row(event))
                group.events.append(event)
            except Unencodable as error:
                logger.warning("An offered event was left out: %s", error)
                outcome.unencodable += 1

    def _row(self, event: AnyEnvelope) -> Row:
        try:
            raw = encode_structured(event, self._settings.max_event_bytes)
            place = (kind_of(event.data).topic.value, partition_of(event.key, self._settings.partitions))
        except Unencodable:
            raise
        except SERIALIZERS_RAISE as error:
            raise refused(f"event {event.id}", error) from error
        return Row(place, event.key, event.source, event.id, raw)

    def _store(self, group: Group, outcome: Outcome) -> None:
        if self._tables is None:
            self._tables = self._reopen()
        before = self._tables.next_offset
        commits = [(commit.group, commit.offsets) for commit in group.commits]
        marks = [append.marks for append, _ in group.appends if append.marks is not None]
        now, offsets = self._tables.write(group.rows, self._clock.now(), commits, marks)
        positions = [Position(*row.place, offset) for row, offset in zip(group.rows, offsets, strict=True)]
        for index, position in enumerate(positions):
            if position.offset == before + index:
                outcome.records.append(Record(position, Instant(now), group.events[index]))
        outcome.duplicates = len(positions) - len(outcome.records)
        outcome.offers, outcome.urgent = [event.key for event in group.offers], len(group.urgent)
        for append, first in group.appends:
            outcome.answers.append((append.token, tuple(positions[first : first + len(append.events)])))
        outcome.answers += [(commit.token, ()) for commit in group.commits]
        self._retry = None
        if self._failing:
            logger.warning("%s can be written again", self._path)
            self._failing = False
        self._note_written(sum(len(row.event) for row in group.rows))

    def _reopen(self) -> Tables:
        connection = connect_writer(self._path, self._settings.max_file_bytes)
        try:
            return Tables(connection)
        except sqlite3.Error:
            connection.close()
            raise

    def _fail(self, group: Group, outcome: Outcome, error: sqlite3.Error) -> None:
        """Tell the appenders; keep the offers for another try."""
        outcome.failed = True
        outcome.unencodable = 0  # offers are encoded again
        reason = LogUnavailable(f"{self._path} cannot be written: {error}")
        reason.__cause__ = error
        outcome.trouble = str(reason)
        outcome.answers += [(append.token, reason) for append, _ in group.appends]
        outcome.answers += [(commit.token, reason) for commit in group.commits]
        self._offers.extendleft(reversed(group.offers))
        self._urgent.extendleft(reversed(group.urgent))
        if not self._failing:
            logger.error("%s", reason)
        self._failing = True
        self._retry = RETRY_FIRST if self._retry is None else min(RETRY_MOST, self._retry * 2)
        self._recover(error)

    def _recover(self, error: sqlite3.Error) -> None:
        """A full file may have something to forget; after other errors the connection is made anew."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL and self._tables is not None:
            self._sweep()
        elif self._tables is not None:
            self._tables.close()
            self._tables = None

    # Upkeep.

    def _note_written(self, size: int) -> None:
        now = self._clock.now()
        self._unchecked += size
        if self._unchecked >= CHECKPOINT_BYTES or now - self._checked_at >= CHECKPOINT_EVERY:
            self._start_checkpoint(now)
            self._empty_large_wal()
        if now - self._swept_at >= self._settings.sweep_every:
            self._sweep()  # never idle: one small step after each group

    def _start_checkpoint(self, now: float) -> None:
        """At most one at a time, aside: its waits for the disk hold up no append."""
        if self._checkpoint is None or self._checkpoint.done():
            self._unchecked, self._checked_at = 0, now
            self._checkpoint = self._keeper.submit(self._checkpoint_aside)

    def _checkpoint_aside(self) -> None:
        """In the keeper's thread: copy the WAL into the file while the writer goes on."""
        try:
            with closing(connect(self._path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            logger.warning("%s: checkpoint put off: %s", self._path, error)

    def _empty_large_wal(self) -> None:
        wal = self._path.with_name(self._path.name + "-wal")
        if self._tables is not None and wal.exists() and wal.stat().st_size > WAL_BYTES:
            self._upkeep(lambda tables: tables.checkpoint("TRUNCATE"))

    def _keep_up(self) -> None:
        """What an idle moment is used for."""
        if self._unchecked:
            self._start_checkpoint(self._clock.now())
        self._sweep()

    def _sweep(self) -> None:
        now = self._clock.now()
        self._sweeping = False

        def step(tables: Tables) -> None:
            self._sweeping = tables.sweep(now, self._settings.retention_of, self._settings.retention)

        self._upkeep(step)
        if not self._sweeping:
            self._swept_at = now

    def _upkeep(self, step: Callable[[Tables], None]) -> None:
        if self._tables is None:
            return
        try:
            step(self._tables)
        except sqlite3.Error as error:
            logger.log(logging.DEBUG if self._failing else logging.WARNING, "%s: upkeep put off: %s", self._path, error)

    def _shut(self) -> None:
        self._keeper.shutdown()
        if self._tables is not None:
            self._upkeep(lambda tables: tables.checkpoint("TRUNCATE"))
            self._tables.close()
        self.closed.set_result(None)
