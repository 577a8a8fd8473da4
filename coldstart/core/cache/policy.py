"""Bounds and constants of the weight cache: plain numbers, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from events.units import Bytes, Seconds

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """How a file is fetched. Where no source is named, a value is a choice."""

    chunk_bytes: int = 8 * MIB
    """Of 8 and 32 MiB over 32 connections, 8 were faster by 1.7 times and took a quarter of the memory (measured)."""
    connections_first: int = 2
    connections_most: int = 16
    """One connection was capped at 80 MiB/s by object stores' servers; beyond 8 to 16 one core is busy (measured).
    Bounds memory too: a chunk a connection, and one for who writes. From a server that is faster than the digest, 2
    connections take half the CPU of 16 (measured: what waits in 16 sockets has left the processor's caches)."""
    waiting_chunks: int = 4
    """Chunks kept in memory for the in-order digest; beyond them it reads the file again (page cache). With 8, the page
    faults of fresh buffers cost more than the reading (measured)."""
    ahead_chunks: int = 2
    """While so many chunks wait for their turn at the digest, no more are asked for: the digest has enough to do, and
    what is left for it after the last byte takes milliseconds. A choice: 8 MiB take it 7 ms."""
    stall: Seconds = Seconds(5.0)
    """Without `floor` bytes in so long, the connection is given up."""
    floor: Bytes = Bytes(4096)
    connect: Seconds = Seconds(5.0)
    patience: Seconds = Seconds(4 * 3600.0)
    """For one plan: 200 GB come in it at 14 MB/s. Verified chunks outlast it."""
    backoff_first: Seconds = Seconds(0.1)
    backoff_most: Seconds = Seconds(5.0)
    retry_after_most: Seconds = Seconds(60.0)
    """Who asks for more patience than this is unavailable."""
    retries: int = 32
    """Of a whole fetch, before `retries_share` of its chunks is added."""
    retries_share: float = 0.25
    restarts: int = 3
    """Plans made anew because the content changed."""
    hedge_after: float = 3.0
    """In the tail, a chunk that takes so many times the median is asked for a second time."""

    def __post_init__(self) -> None:
        """Nonsense is refused here, so that no fetch meets it."""
        if self.chunk_bytes < 1 or not 1 <= self.connections_first <= self.connections_most:
            raise ValueError("chunk_bytes lies above 0, and connections_first between 1 and connections_most")
        if self.retries < 0 or self.restarts < 0 or min(self.stall, self.connect, self.patience) <= 0:
            raise ValueError("retries and restarts are not negative, stall, connect and patience lie above 0")


@dataclass(frozen=True, slots=True)
class Quota:
    """`match`: a pattern as a shell has them on the address without secrets; `*` crosses ``/``, case counts.

    `bytes`, `files`: the most that may be in the cache (a file is an inode of the disk); None: as there is room.
    """

    name: str
    match: str
    bytes: Bytes | None = None
    files: int | None = None

    def has(self, source: str) -> bool:
        """Whether weights of this address are its."""
        return fnmatchcase(source, self.match)


@dataclass(frozen=True, slots=True)
class RoomPolicy:
    """How much of the disk the cache takes."""

    capacity: Bytes | None = None
    """None: what the disk has, less the floor."""
    high: float = 0.85
    low: float = 0.75
    """Above `high` of the capacity, tidying evicts down to `low`. A demanded fetch may fill the capacity."""
    disk_floor: float = 0.05
    """Of the disk, this share stays free (and at most `disk_floor_most` bytes)."""
    disk_floor_most: Bytes = Bytes(10 * 1000**3)
    quotas: tuple[Quota, ...] = ()
    """How much of it the weights of some addresses may take."""
    sla: Seconds = Seconds(3.0)
    """The promised cold start: what fetches slower than this is missed most."""

    def __post_init__(self) -> None:
        """Nonsense is refused here."""
        if not 0 < self.low <= self.high <= 1 or not 0 <= self.disk_floor < 1:
            raise ValueError("0 < low <= high <= 1, and disk_floor lies between 0 and 1")
        if self.capacity is not None and self.capacity < 0:
            raise ValueError("capacity is not negative")
