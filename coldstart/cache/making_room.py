"""Room before the first byte: what fetches will take is promised to them, or made by evictions, or refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path

from coldstart.cache import inventory
from coldstart.cache.layout import Layout, allocated, delete
from coldstart.core.cache.errors import NoSpace
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.quotas import Charge, make_way
from coldstart.core.cache.room import Entry, Space, admit, clock_after, give_up
from events.units import Bytes


class Rooms:
    """What has been promised to the fetches of one cache that run side by side."""

    def __init__(self, layout: Layout, policy: RoomPolicy) -> None:
        self._layout = layout
        self._policy = policy
        self._turns = threading.Condition()
        self._fetching: set[str] = set()
        self._promised: dict[str, Mapping[Path, Bytes]] = {}
        self._charged: dict[str, Charge] = {}
        self._claimed: dict[str, AbstractSet[Path]] = {}
        self.kept: frozenset[str] = frozenset()
        """Digests of contents that go for a fetch that somebody waits for, where nothing else gives the room, and else
        are not evicted for room, as what is pinned and in use never is."""
        self.changing = threading.RLock()
        """Held while something is published, evicted or put aside, so that nobody evicts what is being published."""

    def claim(self, address: str, folders: AbstractSet[Path]) -> None:
        """These partial files are a running fetch's until `release`: nobody else takes their room."""
        with self.changing:
            self._claimed[address] = folders

    def running(self) -> frozenset[Path]:
        """Partial files of all fetches that run."""
        with self.changing:
            return frozenset(folder for folders in self._claimed.values() for folder in folders)

    def promise(
        self, address: str, files: Mapping[Path, Bytes], charge: Charge, *, awaited: bool = True
    ) -> None:  # fmt: skip
        """Room for partial files of these sizes, in these folders; instead of what the address was promised before.

        `awaited`: somebody waits for it. Raises TooLarge, OverQuota or NoSpace, with the numbers.
        """
        with self.changing:
            self._promised.pop(address, None)
            self.charge(address, charge, awaited=awaited)
            needed = Bytes(_missing(files))
            others = sum(_missing(promised) for promised in self._promised.values())
            space = inventory.space(self._layout, self._policy)
            space = replace(space, used=Bytes(space.used + others))
            if space.used + needed > space.capacity:
                self._make(needed, space, awaited=awaited)
            self._promised[address] = dict(files)

    def charge(self, address: str, charge: Charge, *, awaited: bool) -> None:
        """Count it on the quotas of its address until `release`; evicts of them what is in its way. OverQuota."""
        with self.changing:
            self._charged.pop(address, None)
            for quota in self._policy.quotas:
                if quota.has(charge.source):
                    there = inventory.cached(self._layout)
                    promised = tuple(self._charged.values())
                    way = partial(make_way, quota, charge, promised, sla=self._policy.sla)
                    self._evict(there, self._chosen(there, way, awaited=awaited))
            self._charged[address] = charge

    def _chosen(
        self, there: tuple[inventory.Cached, ...], choose: Callable[[tuple[Entry, ...]], tuple[Entry, ...]],
        *, awaited: bool,
    ) -> tuple[Entry, ...]:  # fmt: skip
        """Who goes: of the kept ones only where somebody waits, and the others are not enough."""
        entries = inventory.entries(self._layout, there)
        try:
            return choose(tuple(replace(one, held=one.held or one.digest in self.kept) for one in entries))
        except NoSpace:
            if not awaited:
                raise
        return choose(entries)

    def _evict(self, there: tuple[inventory.Cached, ...], gone: tuple[Entry, ...]) -> None:
        if not gone:
            return
        by_digest = inventory.by_digest(there)
        inventory.evict(self._layout, *(by_digest[entry.digest] for entry in gone))
        inventory.move_clock(self._layout, clock_after(inventory.clock_of(self._layout), gone, self._policy.sla))
        self._layout.empty_trash()

    def _make(self, needed: Bytes, space: Space, *, awaited: bool) -> None:
        """Nothing goes unless enough can: first what is of no use now, then weights."""
        left = give_up(
            space.used + needed - space.capacity, inventory.leftovers(self._layout, self.running())
        )  # fmt: skip
        space = replace(space, used=Bytes(space.used - sum(one.bytes for one in left)))
        there = inventory.cached(self._layout)
        gone = self._chosen(there, lambda entries: admit(needed, space, entries, self._policy), awaited=awaited)
        for one in left:
            delete(self._layout.root / one.name)
        self._evict(there, gone)

    @contextlib.contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """One fetch of an address at a time, also where one caller gives a digest and another does not."""
        with self._turns:
            self._turns.wait_for(lambda: address not in self._fetching)
            self._fetching.add(address)
        try:
            yield
        finally:
            with self._turns:
                self._fetching.discard(address)
                self._turns.notify_all()

    def release(self, address: str) -> None:
        """The fetch is over; harmless twice."""
        with self.changing:
            self._promised.pop(address, None)
            self._charged.pop(address, None)
            self._claimed.pop(address, None)


def _missing(files: Mapping[Path, Bytes]) -> int:
    return sum(max(0, size - allocated(folder / "data")) for folder, size in files.items())
