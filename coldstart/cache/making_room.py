"""Room before the first byte: what fetches will take is promised to them, or made by evictions, or refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from coldstart.cache import inventory
from coldstart.cache.layout import Layout, allocated
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Space, admit, clock_after
from events.units import Bytes


class Rooms:
    """What has been promised to the fetches of one cache that run side by side."""

    def __init__(self, layout: Layout, policy: RoomPolicy) -> None:
        self._layout = layout
        self._policy = policy
        self._turns = threading.Condition()
        self._fetching: set[str] = set()
        self._promised: dict[str, Mapping[Path, Bytes]] = {}
        self.kept: frozenset[str] = frozenset()
        """Digests of contents that are never evicted for room, besides what is pinned and in use."""
        self.changing = threading.RLock()
        """Held while something is published, evicted or put aside, so that nobody evicts what is being published."""

    def promise(self, address: str, files: Mapping[Path, Bytes]) -> None:
        """Room for partial files of these sizes, in these folders; instead of what the address was promised before.

        Raises TooLarge or NoSpace, with the numbers.
        """
        with self.changing:
            self._promised.pop(address, None)
            needed = Bytes(_missing(files))
            others = sum(_missing(promised) for promised in self._promised.values())
            space = inventory.space(self._layout, self._policy)
            space = replace(space, used=Bytes(space.used + others))
            if space.used + needed > space.capacity:
                self._make(needed, space)
            self._promised[address] = dict(files)

    def _make(self, needed: Bytes, space: Space) -> None:
        there = inventory.cached(self._layout)
        entries = inventory.entries(self._layout, there)
        entries = tuple(replace(one, held=one.held or one.digest in self.kept) for one in entries)
        gone = admit(needed, space, entries, self._policy)
        by_digest = inventory.by_digest(there)
        inventory.evict(self._layout, *(by_digest[entry.digest] for entry in gone))
        inventory.move_clock(self._layout, clock_after(inventory.clock_of(self._layout), gone, self._policy.sla))
        self._layout.empty_trash()

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


def _missing(files: Mapping[Path, Bytes]) -> int:
    return sum(max(0, size - allocated(folder / "data")) for folder, size in files.items())
