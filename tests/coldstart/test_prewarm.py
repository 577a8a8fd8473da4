"""Who should have its weights here: capacity, pins, rest under a static forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.prewarm import MISSED, Candidate, PrewarmPolicy, Room, decide
from events.units import Bytes, Instant, Seconds

GIB = 1 << 30
NOW = Instant(1000.0)
POLICY = PrewarmPolicy()


def weights(key: str, size: float = 1.0, rate: float = 1.0, **rest: object) -> Candidate:
    """So many GiB, asked for so often an hour; absent for 10 s."""
    fields = {"absence": Seconds(10.0), **rest}
    return Candidate(key, Bytes(int(size * GIB)), rate, **fields)  # type: ignore[arg-type]  # tests pass what fits


ROOM = Room(Bytes(10 * GIB))

TABLE = [
    ("asked for", [weights("a")], ["a"]),
    ("nobody asks", [weights("a", rate=0.0)], []),
    ("counted on", [weights("a", rate=0.0, wanted=True)], ["a"]),
    ("too large", [weights("a", size=9.0)], []),
    ("size unknown", [replace(weights("a"), bytes=None)], []),
    ("more asked first", [weights("a", 5, 1), weights("b", 5, 2)], ["b"]),
    ("smaller first", [weights("a", 8, 2), weights("b", 2, 1)], ["b"]),
    ("costly absence first", [weights("a", 5, absence=Seconds(0.1)), weights("b", 5)], ["b"]),
    ("counted on before asked", [weights("a", 5, 100), weights("b", 5, 0, wanted=True)], ["b"]),
    ("after a failure, later", [weights("a", retry_at=Instant(2000.0))], []),
    ("worth it by the forecast and the price", [weights("a", rate=0.0, worth=1.0)], ["a"]),
    ("not worth its disk", [weights("a", rate=0.0, worth=0.0)], []),
    ("worth more", [weights("a", 5, 0, worth=10.0), weights("b", 5, 0, worth=20.0)], ["b"]),
    ("worth more for its size", [weights("a", 8, 0, worth=20.0), weights("b", 1, 0, worth=10.0)], ["b"]),
    ("beside a model without a price", [weights("a", 5, 1), weights("b", 5, 0, worth=2 * MISSED)], ["b"]),
    ("and less", [weights("a", 5, 1), weights("b", 5, 0, worth=MISSED / 2)], ["a"]),
    ("here already", [weights("a", here=True)], []),
    ("one at a time", [weights("a", 1, 2), weights("b", 1, 1)], ["a"]),
    ("none beside one that runs", [weights("a", 1, 2, fetching=True), weights("b", 1, 1)], []),
]


@pytest.mark.parametrize(("candidates", "fetched"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_is_fetched_next(candidates: list[Candidate], fetched: list[str]) -> None:
    """One row a rule."""
    assert list(decide(candidates, ROOM, POLICY, NOW).fetch) == fetched


def test_little_more_does_not_displace() -> None:
    """An absent model takes a present one's place only when it is worth a fifth more."""
    here = weights("here", 8, 1.0, here=True)
    assert decide([here, weights("more", 8, 1.1)], ROOM, POLICY, NOW).fetch == ()
    made = decide([here, weights("much", 8, 1.3)], ROOM, POLICY, NOW)
    assert (made.fetch, made.evict) == (("much",), ("here",))


def test_size_is_asked_for_where_it_matters() -> None:
    """Whose size is unknown is asked for it, unless nobody wants it or it failed just now."""
    unknown = replace(weights("a"), bytes=None)
    made = decide(
        [unknown, replace(unknown, key="b", rate=0.0), replace(unknown, key="c", retry_at=Instant(2000.0))],
        ROOM, POLICY, NOW,
    )  # fmt: skip
    assert made.ask == ("a",)


def test_a_fetch_that_nobody_needs_ends() -> None:
    """What is fetched and not worth it any more is stopped; what a start waits for is not."""
    made = decide(
        [weights("a", rate=0.0, fetching=True), weights("b", rate=0.0, fetching=True, held=True)], ROOM, POLICY, NOW
    )
    assert made.stop == ("a",)


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        key=st.uuids().map(str),
        bytes=st.one_of(st.none(), st.integers(0, 12 * GIB).map(Bytes)),
        rate=st.floats(0, 100),
        absence=st.floats(0, 100).map(Seconds),
        here=st.booleans(),
        fetching=st.just(False),
        wanted=st.booleans(),
        pinned=st.booleans(),
        held=st.booleans(),
        retry_at=st.sampled_from([None, Instant(500.0), Instant(2000.0)]),
    ),
    max_size=12,
    unique_by=lambda one: one.key,
)
ROOMS = st.builds(
    Room, capacity=st.integers(1, 40 * GIB).map(Bytes), others=st.integers(0, 4 * GIB).map(Bytes)
)  # fmt: skip


def size_of(candidates: list[Candidate], keys: set[str]) -> int:
    """Bytes of these."""
    return sum(one.bytes or 0 for one in candidates if one.key in keys)


def stays(one: Candidate) -> bool:
    """Whether it is here and nobody may take it out."""
    return one.here and (one.pinned or one.held)


@given(CANDIDATES, ROOMS)
def test_capacity_is_never_exceeded(candidates: list[Candidate], room: Room) -> None:
    """What should be here fits below the high watermark, but for what is here and may not go."""
    made = decide(candidates, room, POLICY, NOW)
    free = {one.key for one in candidates if one.key in made.chosen and not stays(one)}
    fixed = size_of(candidates, {one.key for one in candidates if stays(one) and one.bytes is not None})
    assert not size_of(candidates, free) or fixed + size_of(candidates, free) + room.others <= 0.85 * room.capacity


@given(CANDIDATES, ROOMS)
def test_after_the_evictions_a_fetch_fits(candidates: list[Candidate], room: Room) -> None:
    """Whatever is fetched ahead fits once the named evictions are done."""
    made = decide(candidates, room, POLICY, NOW)
    here = {one.key for one in candidates if one.here and one.bytes is not None}
    after = size_of(candidates, (here - set(made.evict)) | set(made.fetch)) + room.others
    assert not size_of(candidates, set(made.fetch)) or after <= 0.85 * room.capacity


@given(CANDIDATES, ROOMS)
def test_pinned_and_held_are_never_evicted(candidates: list[Candidate], room: Room) -> None:
    """Neither pinned weights nor those in use are named for eviction, nor is anything that was chosen."""
    made = decide(candidates, room, POLICY, NOW)
    by_key = {one.key: one for one in candidates}
    assert not any(by_key[key].pinned or by_key[key].held for key in made.evict)
    assert not set(made.evict) & set(made.chosen)


@given(CANDIDATES, ROOMS)
def test_no_ping_pong(candidates: list[Candidate], room: Room) -> None:
    """Under an unchanging forecast each is fetched at most once, and no fetch is ever undone."""
    picture = {one.key: one for one in candidates}
    fetched: set[str] = set()
    for _ in range(3 * len(candidates) + 3):
        made = decide(picture.values(), room, POLICY, NOW)
        assert not fetched & set(made.fetch)
        assert not fetched & set(made.evict)
        if not made.fetch:
            break
        for key in made.evict:
            picture[key] = replace(picture[key], here=False)
        for key in made.fetch:
            picture[key] = replace(picture[key], here=True)
        fetched |= set(made.fetch)
    else:
        pytest.fail("it never came to rest")


@given(CANDIDATES, ROOMS, st.randoms())
def test_order_does_not_matter(candidates: list[Candidate], room: Room, draw: object) -> None:
    """The same picture in another order gives the same decision."""
    shuffled = list(candidates)
    draw.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert decide(shuffled, room, POLICY, NOW) == decide(candidates, room, POLICY, NOW)


def test_nonsense_is_refused() -> None:
    """A policy that could not hold is refused where it is made."""
    with pytest.raises(ValueError, match="hysteresis"):
        PrewarmPolicy(hysteresis=0.5)
