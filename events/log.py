"""The event log: the port that every adapter (memory, SQLite, Kafka) fulfils, and its errors.

The same contract suite, `tests/contracts/test_event_log.py`, runs over all adapters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from events.envelope import AnyEnvelope
from events.kinds import carrier
from events.units import Instant, Seconds


class EventLogError(Exception):
    """The world failed the log, not its caller."""


class LogUnavailable(EventLogError):
    """The log cannot be written or read now (disk full, broker away). Trying again later may work."""


class LogClosed(EventLogError):
    """The log was closed while this call waited or before it was made."""


class LogInUse(EventLogError):
    """Another process has the log; only one may."""


class LogCorrupt(EventLogError):
    """What is there is not a log that this release can read. The message says what to do."""


@carrier
class Position:
    """A place in the log. Offsets of one partition count up without going back; they may have gaps."""

    topic: str
    partition: int
    offset: int


@carrier
class Record:
    """One event as it stands in the log. `appended_at` is the log's own time and never goes back in a partition."""

    position: Position
    appended_at: Instant
    envelope: AnyEnvelope


@dataclass(frozen=True, slots=True)
class Query:
    """What to read: records of one topic, oldest first, or only the newest of each key.

    Give at most one of `from_offset` (inclusive) and `from_time` (by append time, inclusive); neither means from the
    beginning. `partition` None means all, one after the other. `limit` None means to the end as of the call.
    """

    topic: str
    partition: int | None = None
    from_offset: int | None = None
    from_time: Instant | None = None
    newest_per_key: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a subscription delivers: records in order within each partition; and, on a rebalance, what came and went.

    `caught_up` says that the subscription has now delivered all that stood in the log when it began.
    """

    records: tuple[Record, ...]
    assigned: tuple[tuple[str, int], ...] = ()
    revoked: tuple[tuple[str, int], ...] = ()
    caught_up: bool = False


class Subscription(Protocol):
    """A reader's place in some topics. Iterate it; commit after the effect; close it."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Deliver batches until closed. A batch is delivered at once when something is there: nothing polls."""

    def add(self, start: Start) -> None:
        """Follow the partitions of `start` too, from there (subscriptions that began with chosen partitions only).

        The batch that tells that they are `assigned` comes before their first record; a batch with `caught_up` that
        comes with it or after it says that their past has been delivered too.
        """

    def drop(self, partitions: Collection[int]) -> None:
        """Follow these partitions no longer: no batch that comes after this call has a record of theirs."""

    async def commit(self, positions: Sequence[Position]) -> None:
        """The effect of everything up to and including these positions has been done (groups only)."""

    async def close(self) -> None:
        """Stop. The iteration ends; what was not committed is delivered again to the group."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription without a committed offset begins. Raises ValueError for `time` without a time.

    `newest_per_key`: first the newest value of each key, then all that follows (how states are followed).
    """

    at: Literal["beginning", "end", "newest_per_key", "time"] = "end"
    time: Instant | None = None
    partitions: tuple[int, ...] | None = None
    """Only these of each topic; None: all. Without a group, more may be added and some dropped later. In a group these
    alone are shared out: all members must give the same."""

    def __post_init__(self) -> None:
        if self.at == "time" and self.time is None:
            raise ValueError("Start(at='time') needs a time")


class EventLog(Protocol):
    """Append, offer, read, subscribe, lag."""

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """Write all of `events`, in order, or none; return when they are durable.

        An event whose (source, id) stands in the log already is not written again; its first position is returned.
        Raises LogUnavailable, LogClosed.
        """

    def offer(self, envelope: AnyEnvelope) -> bool:
        """Hand over one event of news, never blocking. False: the bound was reached; it was dropped and counted."""

    def read(self, query: Query) -> AsyncIterator[Record]:
        """Read what stands in the log now."""

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        """Follow topics. With a group, its members share the partitions and go on at the committed offsets."""

    async def lag(self, group: str) -> Mapping[tuple[str, int], int]:
        """Records after the committed offset, by (topic, partition) that the group has committed in."""


@dataclass(frozen=True, slots=True)
class LogStats:
    """What a log has done since it was opened, in events, and what waits in it now."""

    appended: int = 0
    """Written, whether appended or offered."""
    duplicates: int = 0
    """Stood in the log already and were not written again."""
    offered: int = 0
    """Taken by `offer`."""
    dropped: int = 0
    """Refused by `offer` because its bound was reached, or lost with a log that could not be written."""
    put_off: int = 0
    """Ordinary windows refused by `offer` because the log was behind: their gateway merges them into the next."""
    ignored: int = 0
    """Of a newer release: skipped."""
    rejected: int = 0
    """Not readable: skipped, and told of in the dead letters."""
    commits: int = 0
    """Transactions."""
    failures: int = 0
    """Transactions that failed (disk full); their appenders were told."""
    queue_depth: int = 0
    """Events that wait to be written."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What may be forgotten. State topics keep the newest value of each key for ever, whatever these say."""

    age: Seconds = Seconds(7 * 86400.0)
    bytes: int = 1 << 30
