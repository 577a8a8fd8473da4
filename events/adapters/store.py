"""What subscriptions need of a log in this process: reading from a place, and committed offsets."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from events.log import Position, Record
from events.units import Instant

Place = tuple[str, int]
"""A (topic, partition)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in order, and where to go on. `more`: there may be others after them; else all that stood was read."""

    records: tuple[Record, ...]
    next_offset: int
    more: bool


class Store(Protocol):
    """Reads that wait without blocking the loop. All raise LogUnavailable and LogClosed."""

    async def follow(self, place: Place, offset: int, limit: int) -> Chunk:
        """At most `limit` records from `offset` on."""

    async def newest(self, place: Place, offset: int, limit: int) -> Chunk:
        """At most `limit` records from `offset` on that are the newest of their key."""

    async def offset_at(self, place: Place, time: Instant) -> int:
        """The first offset that was appended at `time` or later; past the end when there is none."""

    async def committed(self, group: str) -> Mapping[Place, int]:
        """Where the group goes on, by place."""

    async def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Let the group go on at `offsets`; an offset never moves back. Returns when durable."""


def offsets_after(positions: Iterable[Position], held: Container[Place]) -> dict[Place, int]:
    """The offsets to commit once these are done: of the next record, by place. Of places not held none."""
    offsets: dict[Place, int] = {}
    for position in positions:
        place = (position.topic, position.partition)
        if place in held:
            offsets[place] = max(offsets.get(place, 0), position.offset + 1)
    return offsets
