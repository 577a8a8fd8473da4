"""Where the event log is: ``memory:`` or ``sqlite:PATH``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """In this process alone; gone with it."""


@dataclass(frozen=True, slots=True)
class SqliteEvents:
    """In a file, for one process at a time."""

    path: Path


EventsUrl = MemoryEvents | SqliteEvents


def parse_events_url(text: str) -> EventsUrl:
    """Read ``memory:``, ``sqlite:PATH``; ValueError says what was wrong and what to write."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "memory":
        if rest.strip("/"):
            raise ValueError("memory: takes no path; write memory: alone")
        return MemoryEvents()
    if colon and scheme == "sqlite":
        path = rest.removeprefix("//")
        if not path or path.endswith("/"):
            raise ValueError("sqlite: needs the path of a file; write sqlite:/var/lib/relume/events.db")
        return SqliteEvents(Path(path).expanduser())
    if colon and scheme == "kafka":
        raise ValueError("kafka: is not in this version; write sqlite:PATH or memory:")
    raise ValueError(f"{text!r} is not an address of an event log; write memory: or sqlite:PATH")
