"""Reading the SQLite log: a thread with a connection of its own, so that reads stop neither the loop nor the writer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from events.adapters.sqlite_file import connect
from events.adapters.store import Chunk, Place
from events.codec import Ignored, Rejected, decode_structured
from events.log import LogClosed, LogUnavailable, Position, Record
from events.units import Instant
from events.work import Mark

T = TypeVar("T")

_FOLLOW = (
    "SELECT seq, appended_at, event FROM records WHERE seq >= ? AND stream ="
    " (SELECT stream FROM streams WHERE topic = ? AND partition = ?) ORDER BY seq LIMIT ?"
)
_NEWEST = (
    "SELECT r.seq, r.appended_at, r.event FROM newest AS n JOIN records AS r ON r.seq = n.seq WHERE n.seq >= ? AND"
    " n.stream = (SELECT stream FROM streams WHERE topic = ? AND partition = ?) ORDER BY n.seq LIMIT ?"
)
_LAG = (
    "SELECT c.topic, c.partition, (SELECT count(*) FROM records AS r WHERE r.seq >= c.next_offset AND r.stream ="
    " (SELECT stream FROM streams AS s WHERE s.topic = c.topic AND s.partition = c.partition))"
    " FROM committed AS c WHERE c.reader = ?"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A row that gave no event."""

    position: Position
    found: Ignored | Rejected
    raw: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """What a read found: the readable records, and what was not readable among them."""

    chunk: Chunk
    faults: tuple[Fault, ...]


class SqliteReader:
    """Called on the loop's thread; waits for its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relume-log-reader")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect now: while this connection is open the WAL and its index stay, so a full disk stops no reading."""
        await self._call(lambda connection: connection.execute("SELECT count(*) FROM meta").fetchone())

    async def close(self) -> None:
        """Finish what was begun; then close."""
        await self._call(lambda _: self._disconnect())
        self._thread.shutdown(wait=False)

    def abandon(self) -> None:
        """Close without waiting, after a failed open."""
        self._thread.submit(self._disconnect)
        self._thread.shutdown(wait=False)

    async def follow(self, place: Place, offset: int, limit: int) -> Page:
        """At most `limit` records from `offset` on."""
        return await self._call(lambda connection: _page(connection, _FOLLOW, place, (offset, limit)))

    async def newest(self, place: Place, offset: int, limit: int) -> Page:
        """At most `limit` records from `offset` on that are the newest of their key."""
        return await self._call(lambda connection: _page(connection, _NEWEST, place, (offset, limit)))

    async def offset_at(self, time: Instant) -> int:
        """The first offset, of all places, that was appended at `time` or later."""
        return await self._call(lambda connection: _offset_at(connection, time))

    async def committed(self, group: str) -> dict[Place, int]:
        """Where the group goes on."""
        query = "SELECT topic, partition, next_offset FROM committed WHERE reader = ?"
        return await self._call(lambda connection: _by_place(connection, query, group))

    async def marks(self, group: str) -> dict[Place, Mark]:
        """How far the group's work is done."""
        query = "SELECT topic, partition, next_offset, done FROM marks WHERE reader = ?"
        rows = await self._call(lambda connection: connection.execute(query, (group,)).fetchall())
        return {(topic, partition): Mark(offset, tuple(json.loads(done))) for topic, partition, offset, done in rows}

    async def lag(self, group: str) -> Mapping[Place, int]:
        """Records from the committed offsets on."""
        return await self._call(lambda connection: _by_place(connection, _LAG, group))

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, work)
        except sqlite3.Error as error:
            raise LogUnavailable(f"{self._path} cannot be read: {error}") from error
        except RuntimeError as error:  # the thread has been shut down
            raise LogClosed("the log is closed") from error

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """In the reader's thread. After an error the connection is made anew, so that a passing fault passes."""
        if self._connection is None:
            self._connection = connect(self._path)
            self._connection.execute("PRAGMA query_only = ON")
        try:
            return work(self._connection)
        except sqlite3.Error:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _page(connection: sqlite3.Connection, query: str, place: Place, span: tuple[int, int]) -> Page:
    offset, limit = span
    rows = connection.execute(query, (offset, *place, limit)).fetchall()
    records: list[Record] = []
    faults: list[Fault] = []
    for seq, appended_at, event in rows:
        position = Position(*place, seq)
        raw = event if isinstance(event, bytes) else str(event).encode(errors="replace")  # another hand may write text
        found = decode_structured(raw, received_at=Instant(appended_at), limit=len(raw))
        if isinstance(found, Ignored | Rejected):
            faults.append(Fault(position, found, raw))
        else:
            records.append(Record(position, Instant(appended_at), found))
    next_offset = rows[-1][0] + 1 if rows else offset
    return Page(Chunk(tuple(records), next_offset, more=len(rows) == limit), tuple(faults))


def _offset_at(connection: sqlite3.Connection, time: float) -> int:
    """Binary search: the time of append never goes back as offsets go on."""
    low, high = connection.execute("SELECT coalesce(min(seq), 0), coalesce(max(seq) + 1, 0) FROM records").fetchone()
    while low < high:
        middle = (low + high) // 2
        seq, appended_at = connection.execute(
            "SELECT seq, appended_at FROM records WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,)
        ).fetchone()
        if appended_at >= time:
            high = middle
        else:
            low = seq + 1
    return int(low)


def _by_place(connection: sqlite3.Connection, query: str, group: str) -> dict[Place, int]:
    return {(topic, partition): number for topic, partition, number in connection.execute(query, (group,)).fetchall()}
