"""Where the event log is: ``memory:``, ``sqlite:PATH`` or ``kafka://HOST:PORT[,HOST:PORT]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """In this process alone; gone with it."""


@dataclass(frozen=True, slots=True)
class SqliteEvents:
    """In a file, for one process at a time."""

    path: Path


@dataclass(frozen=True, slots=True)
class KafkaEvents:
    """On Apache Kafka, for many processes."""

    servers: tuple[str, ...]
    """HOST:PORT of some of its brokers."""


EventsUrl = MemoryEvents | SqliteEvents | KafkaEvents

_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def parse_events_url(text: str) -> EventsUrl:
    """Read the address of an event log; ValueError says what was wrong and what to write."""
    scheme, colon, rest = text.partition(":")
    match scheme if colon else "":
        case "memory":
            if rest.strip("/"):
                raise ValueError("memory: takes no path; write memory: alone")
            return MemoryEvents()
        case "sqlite":
            path = rest.removeprefix("//")
            if not path or path.endswith("/"):
                raise ValueError("sqlite: needs the path of a file; write sqlite:/var/lib/relume/events.db")
            return SqliteEvents(Path(path).expanduser())
        case "kafka":
            return KafkaEvents(_servers(rest.removeprefix("//").removesuffix("/")))
    raise ValueError(f"{text!r} is not an address of an event log; write memory:, sqlite:PATH or kafka://HOST:PORT")


def _servers(text: str) -> tuple[str, ...]:
    if "@" in text:
        raise ValueError("kafka: takes no user here; write kafka_username and kafka_password_file")
    servers = tuple(text.split(","))
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None or not 0 < int(found[1]) < 65536:
            raise ValueError(f"kafka: {server!r} is no HOST:PORT; write kafka://HOST:PORT[,HOST:PORT]")
    return servers
