"""What passes between the loop and the writer thread of the SQLite log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from events.adapters.sqlite_tables import Marks, Row
from events.adapters.store import Place
from events.envelope import AnyEnvelope
from events.log import Position, Record


@dataclass(frozen=True, slots=True)
class Append:
    """Events to be written together, perhaps with marks; `token` tells the loop whose they are."""

    token: int
    events: tuple[AnyEnvelope, ...]
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's offsets to be set."""

    token: int
    group: str
    offsets: Mapping[Place, int]


@dataclass(slots=True)
class Outcome:
    """What one transaction came to; told to the loop in one call."""

    records: list[Record] = field(default_factory=list)
    answers: list[tuple[int, tuple[Position, ...] | Exception]] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)  # the keys of those that need not wait any more
    urgent: int = 0
    duplicates: int = 0
    unencodable: int = 0
    failed: bool = False
    trouble: str = ""
    """Why it failed."""


@dataclass(slots=True)
class Group:
    """Work that goes into one transaction."""

    appends: list[tuple[Append, int]] = field(default_factory=list)  # with the number of rows before
    commits: list[Commit] = field(default_factory=list)
    urgent: list[AnyEnvelope] = field(default_factory=list)
    offers: list[AnyEnvelope] = field(default_factory=list)
    events: list[AnyEnvelope] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
