"""Quotas by bytes and files: who goes for whom, and who is told no."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_for
from coldstart.cache.inventory import cached
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import OverQuota
from coldstart.core.cache.policy import FetchPolicy, Quota, RoomPolicy
from coldstart.core.cache.quotas import Charge, make_way, use_of
from coldstart.core.cache.room import Entry, Heat
from coldstart.core.prewarm import Candidate, PrewarmPolicy, Room, decide
from events.clock import SystemClock
from events.units import Bytes, Instant, Seconds

SLA = Seconds(3.0)
A = Quota("a", "hf://a/*", Bytes(10), files=4)


def entry(
    name: str, size: int = 4, *, rate: float = 1.0, held: bool = False, sources: str = "hf://a/",
    blobs: tuple[tuple[str, int], ...] = (),
) -> Entry:  # fmt: skip
    """Weights; `sources` are the beginnings of their addresses, in words."""
    named = tuple(f"{each}{name}" for each in sources.split())
    return Entry(name, Bytes(size), Seconds(4.0), Heat(rate, Instant(0.0), 0.0), held, blobs, named)


def charge(size: int, files: int = 1, source: str = "hf://a/new", blobs: tuple[tuple[str, int], ...] = ()) -> Charge:
    return Charge(source, Bytes(size), files, blobs)


TWO = (entry("often", rate=9.0), entry("seldom"), entry("other", 1000, rate=0.1, sources="hf://b/"))
SHARED = (entry("x", 4, blobs=(("one", 3), ("both", 1))), entry("y", 4, blobs=(("two", 3), ("both", 1))))


@pytest.mark.parametrize(
    ("there", "new", "promised", "gone"),
    [
        (TWO, charge(2), (), []),
        (TWO, charge(3), (), ["seldom"]),
        (TWO, charge(7), (), ["often", "seldom"]),
        (TWO, charge(2), (charge(1),), ["seldom"]),
        (TWO, charge(2), (charge(9, source="hf://b/new"),), []),
        (TWO, charge(2000, source="hf://b/new"), (), []),
        (TWO, charge(0, files=3), (), ["seldom"]),
        (SHARED, charge(3), (), []),
        (SHARED, charge(4), (), ["x"]),
        (TWO, charge(2, blobs=(("seldom", 4),)), (), []),
        (TWO, charge(3, blobs=(("seldom", 4),)), (), ["often"]),
    ],
    ids=[
        "fits", "one-goes", "both-go", "with-what-is-promised", "not-its-promise", "another's", "files", "shared-once",
        "shared-is-not-freed", "known-blob-costs-nothing", "known-blob-stays",
    ],
)  # fmt: skip
def test_who_goes(there: Sequence[Entry], new: Charge, promised: tuple[Charge, ...], gone: list[str]) -> None:
    """The least worth of the quota's own, as few as needed; never another's."""
    assert sorted(one.digest for one in make_way(A, new, promised, there, SLA)) == gone


@pytest.mark.parametrize(
    ("there", "new"),
    [
        ((), charge(11)),
        ((), charge(1, files=5)),
        ((entry("h", held=True),), charge(7)),
        ((entry("s", sources="hf://a/ hf://b/"),), charge(7)),
    ],
    ids=["larger-than-all", "too-many-files", "held", "also-another's"],
)
def test_what_is_refused(there: Sequence[Entry], new: Charge) -> None:
    """With name, pattern, and numbers; nothing of others is taken for it."""
    with pytest.raises(OverQuota, match=r"quota a \(hf://a/\*\): .* of 10 at most, .* files of 4 at most"):
        make_way(A, new, (), (*there, entry("other", 1000, sources="hf://b/")), SLA)


def test_what_a_quota_has() -> None:
    """Each blob once."""
    use = use_of(A, (*SHARED, *TWO))
    assert (use.bytes, use.files) == (3 + 3 + 1 + 4 + 4, 5)


@pytest.mark.parametrize("quota", [Quota("a", "a*", Bytes(10)), Quota("a", "a*", files=2)], ids=["bytes", "files"])
def test_nobody_is_fetched_ahead_beyond_a_quota(quota: Quota) -> None:
    """Two that do not fit together do not take turns, and what nobody asks for goes for who is asked for."""
    first = Candidate("a1", Bytes(8), 9.0, Seconds(9.0), here=True, files=2, quotas=("a",))
    second = Candidate("a2", Bytes(8), 8.0, Seconds(9.0), files=2, quotas=("a",))
    other = Candidate("b", Bytes(8), 0.1, Seconds(9.0), files=2)
    room = Room(Bytes(1000), quotas=(quota,))
    made = decide((first, second, other), room, PrewarmPolicy(), Instant(0.0))
    assert (set(made.chosen), made.fetch, made.evict) == ({"a1", "b"}, ("b",), ())
    idle = Candidate("a0", Bytes(8), 0.0, Seconds(9.0), here=True, files=2, quotas=("a",))
    old = Candidate("old", Bytes(8), 0.0, Seconds(9.0), here=True, files=2)
    made = decide((idle, old, second), room, PrewarmPolicy(), Instant(0.0))
    assert (made.fetch, made.evict) == (("a2",), ("a0",))


def test_a_fetch_keeps_to_its_quota(tmp_path: Path) -> None:
    """On the disk: the third of a quota of two takes the place of one of them; another's stays; too much is refused."""
    names = {}
    for folder, name, size in (("a", "1", 9), ("a", "2", 9), ("a", "3", 9), ("b", "1", 9), ("a", "big", 40)):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / name
        path.write_bytes(f"{folder}{name}".encode() * size * 2048)
        names[folder + name] = path.as_uri()
    quota = Quota("team-a", f"{(tmp_path / 'a').as_uri()}/*", Bytes(100 << 10))
    clock = SystemClock()
    cache = WeightCache(tmp_path / "cache", FetchPolicy(), RoomPolicy(quotas=(quota,)), clock)

    def fetch(name: str) -> None:
        wanted = Wanted(names[name], None)
        cache.fetch(wanted, source_for(wanted, FetchPolicy(), clock), Progress()).use.end()

    for name in ("b1", "a1", "a2", "a3"):
        fetch(name)
    there = {each.source for one in cached(cache.layout) for each in one.manifests}
    assert names["b1"] in there
    assert names["a3"] in there
    assert len(there) == 3
    with pytest.raises(OverQuota, match="team-a"):
        fetch("abig")
    assert {each.source for one in cached(cache.layout) for each in one.manifests} == there
