"""The tables of the SQLite log as its writer thread uses them: adding rows, committed offsets, forgetting.

An append is one INSERT of many rows, with the bookkeeping in triggers, because each statement lets go of the
interpreter's lock and must win it back: a busy loop would make every further statement wait.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from events.adapters.store import Place
from events.log import Retention
from events.names import TOPIC_KINDS, TopicKind
from events.work import Mark

ROWS: Final = 128  # rows of one statement; each number of rows is a statement of its own in the connection's cache
SWEPT: Final = 200  # rows that one step of forgetting deletes: about a millisecond


@dataclass(frozen=True, slots=True)
class Marks:
    """How far a group's work is done."""

    group: str
    marks: Mapping[Place, Mark]


Offsets = tuple[str, Mapping[Place, int]]
"""A group, and where it goes on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One event to be written."""

    place: Place
    key: str
    source: str
    id: str
    event: bytes


class Tables:
    """Used by one thread, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._streams: dict[Place, int] = {
            (topic, partition): stream
            for stream, topic, partition in connection.execute("SELECT stream, topic, partition FROM streams")
        }
        last = connection.execute("SELECT seq, appended_at FROM records ORDER BY seq DESC LIMIT 1").fetchone()
        self._last_offset: int = last[0] if last else -1
        self._next_offset = self._last_offset + 1
        self._last_time: float = last[1] if last else 0.0
        self._sweep_from: dict[int, int] = {}

    @property
    def next_offset(self) -> int:
        """The offset that the next row will have."""
        return self._next_offset

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def write(
        self, rows: Sequence[Row], now: float, commits: Sequence[Offsets], marks: Sequence[Marks] = ()
    ) -> tuple[float, list[int]]:
        """Add `rows`, set committed offsets and marks, all in one transaction.

        Returns the time of the append and the offset of each row; one below `next_offset` of before stood there
        already. Raises sqlite3.Error, and then nothing was written.
        """
        for place in dict.fromkeys(row.place for row in rows):
            self._stream_of(place)
        appended_at = max(self._last_time, now)
        if not commits and not marks and len(rows) <= ROWS:
            offsets = self._insert(rows, self._next_offset, appended_at)  # a statement is a transaction of its own
        else:
            offsets = self._write_in_transaction(rows, appended_at, commits, marks)
        self._last_offset = max([self._last_offset, *offsets])
        self._next_offset += len(rows)
        self._last_time = appended_at
        return appended_at, offsets

    def _write_in_transaction(
        self, rows: Sequence[Row], appended_at: float, commits: Sequence[Offsets], marks: Sequence[Marks]
    ) -> list[int]:
        offsets: list[int] = []
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for start in range(0, len(rows), ROWS):
                offsets += self._insert(rows[start : start + ROWS], self._next_offset + start, appended_at)
            for group, places in commits:
                self._set_committed(group, places)
            for one in marks:
                self._set_marks(one)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return offsets

    def _insert(self, rows: Sequence[Row], first: int, appended_at: float) -> list[int]:
        if not rows:
            return []
        values = ",".join(["(?,?,?,?,?,?,?)"] * len(rows))
        arguments: list[object] = []
        for index, row in enumerate(rows):
            arguments += (first + index, self._streams[row.place], appended_at, row.key, row.source, row.id, row.event)
        added = self._connection.execute(
            f"INSERT INTO records VALUES {values} ON CONFLICT (source, id) DO NOTHING",  # noqa: S608 -- only question marks
            arguments,
        ).rowcount
        if added == len(rows):
            return list(range(first, first + len(rows)))
        find = "SELECT seq FROM records WHERE source = ? AND id = ?"
        return [self._connection.execute(find, (row.source, row.id)).fetchone()[0] for row in rows]

    def _set_committed(self, group: str, places: Mapping[Place, int]) -> None:
        self._connection.executemany(
            "INSERT INTO committed VALUES (?, ?, ?, ?) ON CONFLICT (reader, topic, partition)"
            " DO UPDATE SET next_offset = max(next_offset, excluded.next_offset)",
            [(group, topic, partition, offset) for (topic, partition), offset in places.items()],
        )

    def _set_marks(self, marks: Marks) -> None:
        self._connection.executemany(
            "INSERT INTO marks VALUES (?, ?, ?, ?, ?) ON CONFLICT (reader, topic, partition)"
            " DO UPDATE SET next_offset = excluded.next_offset, done = excluded.done",
            [
                (marks.group, topic, partition, mark.next_offset, json.dumps(mark.done))
                for (topic, partition), mark in marks.marks.items()
            ],
        )

    def _stream_of(self, place: Place) -> int:
        found = self._streams.get(place)
        if found is None:
            state = TOPIC_KINDS.get(place[0]) is TopicKind.STATE
            row = self._connection.execute(
                "INSERT INTO streams (topic, partition, state) VALUES (?, ?, ?) RETURNING stream", (*place, state)
            ).fetchone()
            found = self._streams[place] = int(row[0])
        return found

    # Forgetting.

    def sweep(self, now: float, retention: Mapping[str, Retention], default: Retention) -> bool:
        """Delete some rows that may be forgotten; whether there may be more to do. Raises sqlite3.Error."""
        for (topic, _), stream in self._streams.items():
            kept = retention.get(topic, default)
            if self._sweep_stream(stream, now - kept.age, kept.bytes):
                return True
        self._sweep_from.clear()
        return False

    def checkpoint(self, mode: str) -> None:
        """Bring the WAL into the file; TRUNCATE also empties the WAL."""
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def _sweep_stream(self, stream: int, before: float, most_bytes: int) -> bool:
        state, held = self._connection.execute(
            "SELECT state, bytes FROM streams WHERE stream = ?", (stream,)
        ).fetchone()
        # The last row of all stays, for the next offset follows from it when the file is opened.
        span = (stream, self._sweep_from.get(stream, 0), self._last_offset, SWEPT)
        rows = self._connection.execute(
            "SELECT seq, appended_at, length(event),"
            " EXISTS (SELECT 1 FROM newest WHERE stream = r.stream AND key = r.key AND seq = r.seq)"
            " FROM records AS r WHERE stream = ? AND seq >= ? AND seq < ? ORDER BY seq LIMIT ?",
            span,
        ).fetchall()
        gone, through = _forgettable(rows, before, held - most_bytes, keep_newest=bool(state))
        if gone:
            self._delete(gone)
        if through is None:
            return False
        self._sweep_from[stream] = through + 1
        return True

    def _delete(self, offsets: Iterable[int]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany("DELETE FROM records WHERE seq = ?", [(offset,) for offset in offsets])
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _forgettable(
    rows: Sequence[tuple[int, float, int, int]], before: float, excess: int, *, keep_newest: bool
) -> tuple[list[int], int | None]:
    """Which of `rows` (offset, time, bytes, newest of its key) to delete; and through which offset all was looked at,
    None when the rest is young and small enough."""
    gone: list[int] = []
    for offset, appended_at, size, newest in rows:
        if appended_at >= before and excess <= 0:
            return gone, None
        if newest and keep_newest:
            continue
        gone.append(offset)
        excess -= size
    return gone, rows[-1][0] if len(rows) == SWEPT else None
