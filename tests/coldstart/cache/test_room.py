"""Admission and eviction: who goes, who never does, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.errors import NoSpace, TooLarge
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Entry, Heat, Space, admit, asked, capacity, clock_after, loss, tidy, worth
from events.units import Bytes, Instant, Seconds

MIB = 1 << 20
SLA = Seconds(3.0)
POLICY = RoomPolicy(capacity=Bytes(10 * MIB))


def entry(name: str, mib: int = 4, *, rate: float = 1.0, seconds: float = 4.0, held: bool = False) -> Entry:
    """Weights of so many MiB."""
    return Entry(name, Bytes(mib * MIB), Seconds(seconds), Heat(rate, Instant(0.0), 0.0), held)


def space(used: int, most: int = 10) -> Space:
    """In MiB."""
    return Space(Bytes(most * MIB), Bytes(used * MIB))


def test_the_third_of_three_evicts_the_one_that_is_asked_for_less() -> None:
    """A cap of 10 and three of 4: one goes, the right one."""
    there = [entry("often", rate=9.0), entry("seldom", rate=1.0)]
    assert [one.digest for one in admit(Bytes(4 * MIB), space(8), there, POLICY)] == ["seldom"]


def test_what_fits_evicts_nobody() -> None:
    """To the last byte."""
    assert admit(Bytes(2 * MIB), space(8), [entry("a"), entry("b")], POLICY) == ()


def test_what_is_held_never_goes() -> None:
    """Not even when it is the only one; the numbers are told."""
    with pytest.raises(NoSpace) as refused:
        admit(Bytes(8 * MIB), space(8), [entry("a", held=True), entry("b")], POLICY)
    assert (refused.value.needed, refused.value.free) == (8 * MIB, 6 * MIB)


def test_larger_than_the_cap_is_refused_with_the_numbers() -> None:
    """Though all could go."""
    with pytest.raises(TooLarge, match=f"{11 * MIB} bytes are needed.* {10 * MIB} bytes at most"):
        admit(Bytes(11 * MIB), space(0), [], POLICY)


def test_nobody_goes_in_vain() -> None:
    """A small one that was chosen first is spared when the large one makes the room alone."""
    there = [entry("small", 1, rate=0.1), entry("large", 8, rate=3.0)]
    assert [one.digest for one in admit(Bytes(4 * MIB), space(9), there, POLICY)] == ["large"]


def test_what_breaks_the_promise_stays_before_what_does_not() -> None:
    """Of two alike, the one whose fetch takes longer than the promise is worth more."""
    assert loss(Seconds(30.0), SLA) > 1.0 > loss(Seconds(1.0), SLA)
    slow, quick = entry("slow", seconds=30.0), entry("quick", seconds=0.5)
    assert admit(Bytes(4 * MIB), space(8), [slow, quick], POLICY) == (quick,)


def test_the_clock_makes_the_old_go() -> None:
    """Greedy-dual: what was asked for much and long ago is overtaken by what came after evictions."""
    old = entry("old", rate=2.0)
    clock = clock_after(0.0, [entry("gone", rate=50.0)], SLA)
    new = Entry("new", Bytes(4 * MIB), Seconds(4.0), asked(None, Instant(1.0), clock), held=False)
    assert worth(new, SLA) > worth(old, SLA)


def test_heat_halves_in_an_hour() -> None:
    """And grows by the same step with each request."""
    once = asked(None, Instant(0.0), 0.0)
    assert asked(once, Instant(3600.0), 0.0).rate == pytest.approx(1.5 * once.rate)


def test_watermarks() -> None:
    """Nobody goes below the high one; above it, down to the low one."""
    there = [entry(name, 3, rate=rate) for name, rate in (("a", 3.0), ("b", 2.0), ("c", 1.0))]
    assert tidy(space(8), there, POLICY) == ()
    assert [one.digest for one in tidy(space(9), there, POLICY)] == ["c"]


def test_the_disk_bounds_the_cache() -> None:
    """Its own bound, or what the disk has beyond the floor, whichever is less; never below zero."""
    assert capacity(POLICY, Bytes(1000 * MIB), Bytes(900 * MIB), Bytes(0)) == 10 * MIB
    assert capacity(POLICY, Bytes(100 * MIB), Bytes(6 * MIB), Bytes(2 * MIB)) == 3 * MIB
    assert capacity(RoomPolicy(), Bytes(100 * MIB), Bytes(1 * MIB), Bytes(0)) == 0


ENTRIES = st.lists(
    st.tuples(st.integers(0, 9), st.floats(0, 9), st.floats(0, 60), st.booleans()), max_size=12
)  # fmt: skip


@given(ENTRIES, st.integers(0, 10))
def test_admission_frees_enough_or_says_no(rows: list[tuple[int, float, float, bool]], needed: int) -> None:
    """Never someone held, never someone in vain, never too little."""
    there = [
        entry(str(i), mib, rate=rate, seconds=seconds, held=held) for i, (mib, rate, seconds, held) in enumerate(rows)
    ]
    used = sum(one.bytes for one in there)
    bound = Space(Bytes(10 * MIB), Bytes(used))
    try:
        gone = admit(Bytes(needed * MIB), bound, there, POLICY)
    except NoSpace:
        assert sum(one.bytes for one in there if one.held) + needed * MIB > bound.capacity
        return
    freed = sum(one.bytes for one in gone)
    assert not any(one.held for one in gone)
    assert used - freed + needed * MIB <= bound.capacity
    for one in gone:
        assert used - (freed - one.bytes) + needed * MIB > bound.capacity


def having(name: str, blobs: dict[str, int], *, rate: float = 1.0, held: bool = False) -> Entry:
    """Weights of several blobs, of so many MiB each."""
    sizes = tuple((blob, mib * MIB) for blob, mib in blobs.items())
    whole = Bytes(sum(size for _, size in sizes))
    return Entry(name, whole, Seconds(4.0), Heat(rate, Instant(0.0), 0.0), held, sizes)


def test_who_shares_all_is_not_evicted_in_vain() -> None:
    """Its blobs are another's, which is held: that it goes would free nothing."""
    there = [having("tuned", {"base": 4}, rate=0.1), having("base", {"base": 4}, held=True), having("x", {"x": 4})]
    assert [one.digest for one in admit(Bytes(4 * MIB), space(8), there, POLICY)] == ["x"]


def test_those_who_share_go_together() -> None:
    """Only with the last of them the blob goes."""
    there = [having("one", {"base": 6, "a": 1}), having("two", {"base": 6, "b": 1})]
    assert {one.digest for one in admit(Bytes(8 * MIB), space(8), there, POLICY)} == {"one", "two"}
    assert [one.digest for one in admit(Bytes(3 * MIB), space(8), there, POLICY)] == ["one"]


def taken(left: list[Entry]) -> int:
    """By the blobs of all, each once."""
    return sum(dict(part for one in left for part in one.parts).values())


SETS = st.lists(
    st.tuples(st.sets(st.integers(0, 5), min_size=1), st.floats(0, 9), st.booleans()), max_size=8
)  # fmt: skip


@given(SETS, st.integers(0, 10))
def test_admission_counts_shared_blobs_once(rows: list[tuple[set[int], float, bool]], needed: int) -> None:
    """What is left after the evictions, and what comes, fits; else what is held is in the way."""
    there = [
        having(str(at), {f"b{blob}": blob for blob in blobs}, rate=rate, held=held)
        for at, (blobs, rate, held) in enumerate(rows)
    ]
    bound = Space(Bytes(10 * MIB), Bytes(taken(there)))
    try:
        gone = admit(Bytes(needed * MIB), bound, there, POLICY)
    except NoSpace:
        assert taken([one for one in there if one.held]) + needed * MIB > bound.capacity
        return
    assert not any(one.held for one in gone)
    assert taken([one for one in there if one not in gone]) + needed * MIB <= max(bound.capacity, 0) or not gone
