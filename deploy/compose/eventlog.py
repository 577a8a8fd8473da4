"""The event log that the settings name, opened."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from deploy.settings.events_url import MemoryEvents, SqliteEvents
from deploy.settings.settings import Settings
from events.adapters.memory import MemoryEventLog
from events.adapters.sqlite import SqliteEventLog
from events.adapters.sqlite_writer import SqliteSettings
from events.clock import Clock

OpenLog = MemoryEventLog | SqliteEventLog


def event_log(settings: Settings, clock: Clock) -> AbstractAsyncContextManager[OpenLog]:
    """The log as a context manager; entering it may raise LogInUse, LogCorrupt, LogUnavailable."""
    match settings.events_url:
        case MemoryEvents():
            return MemoryEventLog(clock)
        case SqliteEvents(path=path):
            return SqliteEventLog(path, clock, SqliteSettings(retention=settings.retention))
