"""Policies of a cache over the same starts: what each keeps, and the bytes and promises that come of it.

Nothing is in use for longer than its start, so that policies and bound have the same choice. (What runs is never
evicted, whatever the policy: tests show that.) Weights larger than the cache are read and not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from bench.caching.starts import Start, Starts
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Entry, Heat, Space, admit, asked, clock_after
from events.units import Bytes, Instant, Seconds

BANDWIDTH: Final = float(1 << 30)
"""Bytes a second of a fetch. 1 GiB/s: a 10-Gbit link. Chosen; weights above 3 GiB then break the promise."""

SLA: Final = RoomPolicy().sla


@dataclass(frozen=True, slots=True)
class Kept:
    """`bytes`: of what was asked for, the share that was there. `promises`: of the starts, the share whose weights were
    there, or come within the promise."""

    bytes: float
    promises: float


class Keeping(Protocol):
    """A policy: told of each start; asked for room, and told what goes."""

    def asked(self, start: Start, number: int) -> None:
        """Weights are asked for, there or not; `number` counts starts."""

    def room(self, start: Start, there: frozenset[int], capacity: int) -> frozenset[int]:
        """Whom to evict for it. It is not larger than the capacity."""


def fetch_seconds(size: int) -> Seconds:
    """What a fetch takes."""
    return Seconds(size / BANDWIDTH)


def play(starts: Starts, keeping: Keeping, capacity: int) -> Kept:
    """Play all starts through one policy."""
    there: set[int] = set()
    hit = missed = kept = 0
    for number, start in enumerate(starts.starts):
        keeping.asked(start, number)
        size = starts.sizes[start.model]
        found = start.model in there
        hit, missed = (hit + size, missed) if found else (hit, missed + size)
        kept += found or fetch_seconds(size) <= SLA
        if not found and size <= capacity:
            there -= keeping.room(start, frozenset(there), capacity)
            there.add(start.model)
    return Kept(hit / (hit + missed), kept / len(starts.starts))


class Ours:
    """The cache's own functions: `admit`, with heat and clock as the cache keeps them: what is evicted is forgotten."""

    def __init__(self, starts: Starts) -> None:
        self._sizes = starts.sizes
        self._heat: dict[int, Heat] = {}
        self._clock = 0.0

    def asked(self, start: Start, number: int) -> None:
        """See `Keeping`."""
        del number
        self._heat[start.model] = asked(self._heat.get(start.model), Instant(start.at), self._clock)

    def room(self, start: Start, there: frozenset[int], capacity: int) -> frozenset[int]:
        """See `Keeping`."""
        used = Bytes(sum(self._sizes[model] for model in there))
        entries = [self._entry(model) for model in sorted(there)]
        gone = admit(self._sizes[start.model], Space(Bytes(capacity), used), entries, RoomPolicy())
        self._clock = clock_after(self._clock, gone, SLA)
        for entry in gone:
            del self._heat[int(entry.digest)]
        return frozenset(int(entry.digest) for entry in gone)

    def _entry(self, model: int) -> Entry:
        size = self._sizes[model]
        return Entry(str(model), size, fetch_seconds(size), self._heat[model], held=False)


class Ranked:
    """Evicts what ranks lowest until there is room. `rank` is made anew at each start of a model."""

    def __init__(self, starts: Starts, rank: Callable[[Start, int, int, float], float], *, ages: bool = False) -> None:
        self._sizes = starts.sizes
        self._rank = rank
        self._ages = ages
        self._clock = 0.0
        self._ranks: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def asked(self, start: Start, number: int) -> None:
        """See `Keeping`."""
        self._counts[start.model] = self._counts.get(start.model, 0) + 1
        self._ranks[start.model] = self._rank(start, number, self._counts[start.model], self._clock)

    def room(self, start: Start, there: frozenset[int], capacity: int) -> frozenset[int]:
        """See `Keeping`."""
        missing = self._sizes[start.model] + sum(self._sizes[model] for model in there) - capacity
        gone: set[int] = set()
        for model in sorted(there, key=lambda one: (self._ranks[one], one)):
            if missing <= 0:
                break
            gone.add(model)
            missing -= self._sizes[model]
        if self._ages:
            self._clock = max([self._clock, *(self._ranks[model] for model in gone)])
        return frozenset(gone)


def lru(starts: Starts) -> Ranked:
    """Least recently used."""
    return Ranked(starts, lambda _start, number, _count, _clock: number)


def lfu(starts: Starts) -> Ranked:
    """Least frequently used, counting since the beginning."""
    return Ranked(starts, lambda _start, _number, count, _clock: count)


def gdsf(starts: Starts) -> Ranked:
    """Greedy-dual-size-frequency (Cherkasova, 1998) with cost 1: clock plus count by size, for the number of hits."""
    sizes = starts.sizes
    return Ranked(starts, lambda start, _number, count, clock: clock + count / sizes[start.model], ages=True)


def belady(starts: Starts) -> Ranked:
    """Knows the future: evicts what is asked for again last (Belady, 1966). For weights of one size it is the optimum;
    for several sizes it is a good plan that no cache can have."""
    after: dict[int, float] = {}
    coming = [0.0] * len(starts.starts)
    for number in reversed(range(len(starts.starts))):
        model = starts.starts[number].model
        coming[number] = after.get(model, float("inf"))
        after[model] = number
    return Ranked(starts, lambda _start, number, _count, _clock: -coming[number])
