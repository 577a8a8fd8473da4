"""The file of the SQLite log: its lock, its tables, opening and checking it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final

from events.log import EventLogError, LogCorrupt, LogInUse, LogUnavailable

VERSION: Final = 1
APPLICATION_ID: Final = 0x52454C55  # "RELU": tells file(1) and us whose database it is
CHECKED_BYTES: Final = 64 << 20  # files up to this size are checked whole at open, which takes about 0.1 s

SCHEMA: Final = """
CREATE TABLE streams (
  stream INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, state INTEGER NOT NULL,
  bytes INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, partition));
CREATE TABLE records (
  seq INTEGER PRIMARY KEY, stream INTEGER NOT NULL, appended_at REAL NOT NULL, key TEXT NOT NULL,
  source TEXT NOT NULL, id TEXT NOT NULL, event BLOB NOT NULL);
CREATE UNIQUE INDEX records_by_event ON records (source, id);
CREATE INDEX records_by_stream ON records (stream);
CREATE TABLE newest (stream INTEGER, key TEXT, seq INTEGER NOT NULL, PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE TABLE committed (
  reader TEXT, topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (reader, topic, partition)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER record_added AFTER INSERT ON records BEGIN
  INSERT INTO newest VALUES (new.stream, new.key, new.seq)
    ON CONFLICT (stream, key) DO UPDATE SET seq = excluded.seq;
  UPDATE streams SET bytes = bytes + length(new.event) WHERE stream = new.stream;
END;
CREATE TRIGGER record_forgotten AFTER DELETE ON records BEGIN
  DELETE FROM newest WHERE stream = old.stream AND key = old.key AND seq = old.seq;
  UPDATE streams SET bytes = bytes - length(old.event) WHERE stream = old.stream;
END;
"""

MARKS: Final = """
CREATE TABLE IF NOT EXISTS marks (
  reader TEXT, topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, done TEXT NOT NULL,
  PRIMARY KEY (reader, topic, partition)) WITHOUT ROWID
"""
"""Of work (`events.work`); a file that was made before there was any gets it when it is opened. `done` is JSON."""


class FileLock:
    """Held by the one process that has the log open; the kernel lets go when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._fd = -1

    def take(self) -> None:
        """LogInUse says who has it."""
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            self.release()
            raise LogInUse(
                f"{self._path.with_suffix('')} is in use by process {owner}: stop that one, or give another path"
            ) from error
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another process have it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are written out where they are meant."""
    connection = sqlite3.connect(
        path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def connect_writer(path: Path, max_bytes: int | None) -> sqlite3.Connection:
    """The writer's connection: it does not checkpoint within a commit, and respects a bound of the file's size."""
    connection = connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        if max_bytes is not None:
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page)}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(path: Path, partitions: int, max_bytes: int | None) -> sqlite3.Connection:
    """Open the log for writing, making it if there is none; LogCorrupt and LogUnavailable say what to do."""
    connection: sqlite3.Connection | None = None
    try:
        # For the owner's eyes: declarations may hold tokens. SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = connect_writer(path, max_bytes)
        _make_or_check(connection, path, partitions)
    except (sqlite3.Error, OSError, EventLogError) as error:
        if connection is not None:
            connection.close()
        raise _explained(path, error) from error
    return connection


def _make_or_check(connection: sqlite3.Connection, path: Path, partitions: int) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        connection.executescript("BEGIN IMMEDIATE;" + SCHEMA)
        connection.execute("INSERT INTO meta VALUES ('partitions', ?)", (partitions,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(MARKS)
        connection.execute("COMMIT")
        return
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LogCorrupt(f"{path} is a database of another program: give another path")
    if version != VERSION:
        raise LogCorrupt(f"{path} has format {version}, this release reads {VERSION}: use the release that wrote it")
    if path.stat().st_size <= CHECKED_BYTES:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    made_with = connection.execute("SELECT sum(value) FROM meta WHERE name = 'partitions'").fetchone()[0]
    if made_with != partitions:
        raise EventLogError(
            f"{path} has {made_with} partitions a topic, asked for {partitions}: keys would change their partition;"
            f" open it with {made_with}"
        )
    connection.execute(MARKS)


def _explained(path: Path, error: Exception) -> EventLogError:
    if isinstance(error, EventLogError):
        return error
    transient = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN,
                 sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)  # fmt: skip
    if isinstance(error, OSError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in transient:
        return LogUnavailable(f"{path} cannot be opened: {error}. Check free space, and that the folder is writable")
    return LogCorrupt(
        f"{path} is damaged or no event log ({error}). Move it away with its -wal and -shm files"
        f" (mv {path} {path}.broken) and start again; then apply the models again. What is readable in it:"
        f" sqlite3 {path}.broken .recover"
    )
