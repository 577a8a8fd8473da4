"""Work: topics that a group consumes, where effect and offset are written together or not at all.

`WorkQueue` is what asynchronous inference needs of a log besides `events.log.EventLog`. Its adapters (memory, SQLite,
Kafka) pass one contract suite, `tests/contracts/test_work.py`. A reader of the topics that effects are written to sees
each effect once, whoever dies when (on Kafka: a reader with ``isolation.level=read_committed``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from events.envelope import AnyEnvelope
from events.log import Position
from events.units import Instant

Place = tuple[str, int]
"""A (topic, partition)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the work of a place is done: the first offset that is not, and offsets after it that are."""

    next_offset: int
    done: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """A place is this member's from now on, from `mark` on. `term` names this assignment: effects carry it."""

    place: Place
    mark: Mark
    term: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that says who sent it, and not what. `newer`: it may be readable to a newer release."""

    source: str
    id: str
    key: str
    why: str
    newer: bool = False


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A record: an envelope, or `unreadable`, or neither.

    `amends` are to be written together with its being done: the same event where it belongs, a letter about it.
    """

    position: Position
    appended_at: Instant
    envelope: AnyEnvelope | None
    unreadable: Unreadable | None = None
    amends: tuple[AnyEnvelope, ...] = ()

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.position.topic, self.position.partition


@dataclass(frozen=True, slots=True)
class WorkBatch:
    """What a queue delivers: first what went, then what came, then records in the order of each place. Records from
    before a mark, or delivered before, may come again: whoever reads them knows what is done."""

    items: tuple[WorkItem, ...] = ()
    revoked: tuple[Place, ...] = ()
    assigned: tuple[Assigned, ...] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """What is written of one place in one transaction: events, for any topics, and how far its work is done then."""

    term: int
    events: tuple[AnyEnvelope, ...]
    mark: Mark
    copies: tuple[tuple[str, AnyEnvelope], ...] = ()
    """(topic, event): written to a topic of others besides, where the log has such."""


class WorkQueue(Protocol):
    """A member's part of the work. The partitions of all its topics with the same number have the same member."""

    def __aiter__(self) -> AsyncIterator[WorkBatch]:
        """Deliver batches until closed. Raises LogUnavailable when it can go on no more: open another one."""

    def hold(self, places: Collection[Place]) -> None:
        """Deliver nothing more of these, and only these, until told otherwise. A batch more may be on its way."""

    async def settle(self, effects: Mapping[Place, Effect]) -> frozenset[Place]:
        """Write all effects in one transaction; of which places that was done. The others are not this member's any
        more, and nothing of them is written.

        Raises LogUnavailable: it may be written or not; the same call again writes nothing twice. Raises Unencodable
        before anything is written, and LogClosed.
        """

    async def behind(self) -> Mapping[Place, int]:
        """Records that were not delivered yet, as far as that is known. Not those of places that are not this
        member's."""

    async def close(self) -> None:
        """Leave; the iteration ends."""


class WorkLog(Protocol):
    """A log that has work."""

    def work(self, topics: Sequence[str], group: str, member: str) -> WorkQueue:
        """Take part in the work of `topics` as `member` (a name that no other living member has)."""
