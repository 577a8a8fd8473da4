"""Who makes room: admission against the capacity, and eviction by expected loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from coldstart.core.cache.errors import NoSpace, TooLarge
from coldstart.core.cache.policy import RoomPolicy
from events.units import Bytes, Instant, Seconds

HALF_LIFE = Seconds(3600.0)
"""Of the rate at which weights are asked for. Of 30 min to 24 h, one and two hours kept the most promises in the sum
over both public traces and four sizes of cache; the field note's half an hour kept 0.8 % fewer (bench/caching)."""

WAIT_WEIGHT = 0.01
"""A second of waiting is worth this share of one missed promise. A choice: it orders what misses no promise."""


@dataclass(frozen=True, slots=True)
class Heat:
    """How much weights are asked for: `rate` in requests an hour as of `at`, and the eviction clock at that time."""

    rate: float
    at: Instant
    clock: float


@dataclass(frozen=True, slots=True)
class Entry:
    """Weights with all snapshots of them: what could be evicted."""

    digest: str
    bytes: Bytes
    """What their blobs take."""
    fetch_seconds: Seconds
    heat: Heat
    held: bool
    """In use or pinned: never evicted."""
    blobs: tuple[tuple[str, int], ...] = ()
    """Digest and bytes of each blob; empty: one, of their own digest. Evicting frees those that no other entry has."""
    sources: tuple[str, ...] = ()
    """The addresses that name them, without secrets."""

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The blobs, each once."""
        return self.blobs or ((self.digest, int(self.bytes)),)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What takes room and is of no use now: a fetch that nobody goes on with, a blob that was put aside."""

    name: str
    bytes: Bytes
    touched: float
    """When, as the disk has it. Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Space:
    """What the cache may hold, and what it holds."""

    capacity: Bytes
    used: Bytes


def asked(heat: Heat | None, now: Instant, clock: float) -> Heat:
    """The heat after one more request: an exponentially decaying count with the half-life above, as a rate an hour."""
    one = math.log(2) * 3600 / HALF_LIFE
    before = 0.0 if heat is None else heat.rate * 0.5 ** (max(0.0, now - heat.at) / HALF_LIFE)
    return Heat(before + one, now, clock)


def loss(fetch_seconds: Seconds, sla: Seconds) -> float:
    """What a request without these weights loses: about 1 where the fetch alone breaks the promise, less below it.

    A step at the promise, smoothed by the fourth power, since a fetch does not take the same time twice. Without the
    step, cost by size is one over the bandwidth for all, and greedy-dual becomes LFU (field note on cold starts, §4).
    """
    ratio = fetch_seconds / sla
    return ratio**4 / (1 + ratio**4) + WAIT_WEIGHT * fetch_seconds


def worth(entry: Entry, sla: Seconds) -> float:
    """The greedy-dual priority (Cherkasova, 1998; FaasCache, ASPLOS 2021): clock plus rate times loss by size (MiB)."""
    return entry.heat.clock + entry.heat.rate * loss(entry.fetch_seconds, sla) / max(entry.bytes / 2**20, 1e-6)


def capacity(policy: RoomPolicy, disk_total: Bytes, disk_free: Bytes, used: Bytes) -> Bytes:
    """What the cache may hold in all: its own bound, and what the disk has beyond the floor that stays free."""
    floor = min(policy.disk_floor * disk_total, policy.disk_floor_most)
    by_disk = max(0, int(used + disk_free - floor))
    return Bytes(by_disk if policy.capacity is None else min(policy.capacity, by_disk))


def admit(needed: Bytes, space: Space, entries: Iterable[Entry], policy: RoomPolicy) -> tuple[Entry, ...]:
    """Whom to evict, least worth first, so that `needed` bytes fit. TooLarge or NoSpace, with the numbers.

    Few are evicted: of those chosen, any without which it would fit as well is spared.
    """
    if policy.capacity is not None and needed > policy.capacity:
        raise TooLarge(needed, policy.capacity)
    missing = space.used + needed - space.capacity
    if missing <= 0:
        return ()
    shared = _Shared(entries)
    chosen = _least_worth(missing, shared, policy.sla)
    if shared.freed < missing:
        free = Bytes(max(0, space.capacity - space.used + shared.freed))
        raise NoSpace(needed, free, space.capacity, why="the rest is in use, pinned, or not the cache's")
    return chosen


def give_up(missing: int, leftovers: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """Which leftovers go before any whole weights do: those that were touched longest ago, as many as are missing."""
    chosen: list[Leftover] = []
    for one in sorted(leftovers, key=lambda one: (one.touched, one.name)):
        if missing <= 0:
            break
        chosen.append(one)
        missing -= one.bytes
    return tuple(chosen)


def beyond(space: Space, policy: RoomPolicy) -> int:
    """What must go for the cache to be below its low watermark again; 0 while it is below the high one."""
    return 0 if space.used <= policy.high * space.capacity else math.ceil(space.used - policy.low * space.capacity)


def tidy(space: Space, entries: Iterable[Entry], policy: RoomPolicy) -> tuple[Entry, ...]:
    """Whom to evict so that the cache is below its low watermark again; nobody while it is below the high one."""
    missing = beyond(space, policy)
    return _least_worth(missing, _Shared(entries), policy.sla) if missing else ()


def freeing(missing: int, entries: Iterable[Entry], sla: Seconds) -> tuple[tuple[Entry, ...], int]:
    """Whom to evict, least worth first, to free so much of what `blobs` count; and how much that frees: less, where
    the rest is held."""
    shared = _Shared(entries)
    return _least_worth(missing, shared, sla), shared.freed


class _Shared:
    """How much is freed by taking entries out, where several may have the same blob."""

    __slots__ = ("_holders", "entries", "freed")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        self._holders = Counter(digest for entry in self.entries for digest, _ in entry.parts)
        self.freed = 0

    def take(self, entry: Entry) -> None:
        for digest, size in entry.parts:
            self._holders[digest] -= 1
            self.freed += 0 if self._holders[digest] else size

    def put_back(self, entry: Entry, missing: int) -> bool:
        """Unless then fewer than `missing` bytes are freed; always where it freed nothing."""
        back = sum(size for digest, size in entry.parts if not self._holders[digest])
        if back and self.freed - back < missing:
            return False
        self._holders.update(digest for digest, _ in entry.parts)
        self.freed -= back
        return True


def _least_worth(missing: int, shared: _Shared, sla: Seconds) -> tuple[Entry, ...]:
    chosen: list[Entry] = []
    free = (one for one in shared.entries if not one.held and one.bytes)
    for entry in sorted(free, key=lambda one: (worth(one, sla), one.digest)):
        if shared.freed >= missing:
            break
        chosen.append(entry)
        shared.take(entry)
    gone = [entry for entry in reversed(chosen) if not shared.put_back(entry, missing)]
    return tuple(reversed(gone))


def clock_after(clock: float, evicted: Iterable[Entry], sla: Seconds) -> float:
    """The eviction clock: it moves up to the worth of whom it evicted, so that what is not asked for grows old."""
    return max([clock, *(worth(entry, sla) for entry in evicted)])
