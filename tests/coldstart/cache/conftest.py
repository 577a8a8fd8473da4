"""A small cache, and an origin with faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_of
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock
from events.units import Seconds
from tests.support.flaky_origin import Origin, served

CHUNK = 64 << 10
QUICK = FetchPolicy(chunk_bytes=CHUNK, backoff_first=Seconds(0.01), backoff_most=Seconds(0.05))
"""Small chunks and short waits: the same code, quick on small files."""


class Cache:
    """A cache in a folder, and one-line operations on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fetching = QUICK
        self.room = RoomPolicy()

    def weights(self) -> WeightCache:
        return WeightCache(self.root, self.fetching, self.room, SystemClock())

    def fetch(self, address: str, digest: str | None = None, headers: dict[str, str] | None = None) -> Got:
        """Fetch and end the use; the answer."""
        source = source_of(address, headers or {}, self.fetching, SystemClock())
        got = self.weights().fetch(Wanted(address, digest), source, Progress())
        got.use.end()
        return got

    def impatient(self, **changes: object) -> None:
        """Another fetch policy."""
        self.fetching = replace(self.fetching, **changes)

    def snapshots(self) -> list[Path]:
        """Every file that a replica could be given."""
        return sorted(self.weights().layout.snapshots.glob("*/*"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty one."""
    return Cache(tmp_path / "weights")


@pytest.fixture
def content() -> bytes:
    """Ten chunks and a piece, incompressible and always the same."""
    return random.Random(6).randbytes(10 * CHUNK + 1234)


@pytest.fixture
def origin(content: bytes) -> Iterator[Origin]:
    """It serves `content`."""
    with served(Origin(content)) as running:
        yield running


Faults = Callable[[int], str]


def first(count: int, fault: str) -> Faults:
    """The fault in the first so many requests for data."""
    return lambda number: fault if number < count else ""
