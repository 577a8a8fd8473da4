"""Room that nobody has any use of: fetches that were given up and blobs that were put aside make way for a fetch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_of
from coldstart.cache import inventory, tending
from coldstart.cache.layout import Layout
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import CacheError, NoSpace, SourceUnavailable
from coldstart.core.cache.policy import Quota, RoomPolicy
from coldstart.core.cache.room import Leftover, give_up
from events.clock import SystemClock
from events.units import Bytes
from tests.coldstart.cache.conftest import CHUNK, QUICK, Cache
from tests.support.flaky_origin import Origin, served

ROOM_FOR_ONE = RoomPolicy(capacity=Bytes(16 * CHUNK))
"""Of files of ten chunks and a piece."""


@pytest.fixture
def others() -> Iterator[tuple[Origin, Origin]]:
    """Two more origins of as many bytes."""
    with served(Origin(b"a" * (10 * CHUNK))) as one, served(Origin(b"b" * (10 * CHUNK))) as two:
        yield one, two


def begun(cache: Cache, origin: Origin) -> None:
    """A fetch that ends in its middle, with verified chunks."""
    origin.faults = lambda number: "5xx" if number >= 4 else ""
    cache.impatient(retries=0, retries_share=0.0)
    with pytest.raises(SourceUnavailable):
        cache.fetch(origin.url)
    origin.faults = lambda _: ""
    cache.impatient(retries=QUICK.retries, retries_share=QUICK.retries_share)


def partials(cache: Cache) -> list[Path]:
    return list(cache.weights().layout.partial.iterdir())


def test_a_fetch_that_was_given_up_makes_way(cache: Cache, origin: Origin, others: tuple[Origin, Origin]) -> None:
    """Its file was allocated whole: without that no other weights would fit until it is old."""
    cache.room = ROOM_FOR_ONE
    begun(cache, others[0])
    assert len(partials(cache)) == 1
    assert cache.fetch(origin.url).path.read_bytes() == origin.content
    assert partials(cache) == []


def test_one_that_goes_on_keeps_what_it_has(cache: Cache, others: tuple[Origin, Origin]) -> None:
    """In the same small cache: its own room is not in its way, and no verified chunk comes twice."""
    cache.room = ROOM_FOR_ONE
    origin = others[0]
    begun(cache, origin)
    had = set(origin.starts)
    cache.fetch(origin.url)
    assert had
    assert not had & set(origin.starts[len(had) :])


def test_the_oldest_goes_and_no_more_than_need_be(cache: Cache, origin: Origin, others: tuple[Origin, Origin]) -> None:
    """Of two that were given up, the one that was touched last stays, and so do whole weights."""
    cache.room = RoomPolicy(capacity=Bytes(36 * CHUNK))
    with served(Origin(b"c" * CHUNK)) as small:
        cache.fetch(small.url)
        for one in others:
            begun(cache, one)
        cache.room = RoomPolicy(capacity=Bytes(27 * CHUNK))
        newest = max(partials(cache), key=lambda folder: (folder / "data").stat().st_mtime)
        cache.fetch(origin.url)
        assert partials(cache) == [newest]
        assert cache.fetch(small.url).hit


def test_what_was_put_aside_makes_way(cache: Cache, origin: Origin) -> None:
    """A blob that rotted in a cache that has room for no second one: it heals at once, not when it is old."""
    cache.room = ROOM_FOR_ONE
    got = cache.fetch(origin.url)
    layout = cache.weights().layout
    blob = layout.blob(got.manifest.digest)
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(origin.content)))
    blob.chmod(0o444)
    assert tending.verify(layout, inventory.cached(layout)) == (got.manifest.digest,)
    assert cache.fetch(origin.url).path.read_bytes() == origin.content
    assert list(layout.quarantine.iterdir()) == []


def test_nothing_is_given_up_in_vain(cache: Cache, origin: Origin, others: tuple[Origin, Origin]) -> None:
    """Where it would not fit even so, everything stays."""
    cache.room = RoomPolicy(capacity=Bytes(24 * CHUNK))
    got = cache.fetch(origin.url)
    begun(cache, others[0])
    use = inventory.holding.take_use(cache.weights().layout, got.manifest.snapshot)
    assert use is not None
    with served(Origin(b"c" * (20 * CHUNK))) as large, pytest.raises(NoSpace) as refused:
        cache.fetch(large.url)
    assert refused.value.needed == 20 * CHUNK
    assert len(partials(cache)) == 1
    use.end()


def test_above_the_watermark_they_go_before_whole_weights(
    cache: Cache, origin: Origin, others: tuple[Origin, Origin]
) -> None:
    """Tidying takes what nobody can use, and spares a fetch that runs."""
    cache.fetch(origin.url)
    begun(cache, others[0])
    layout = cache.weights().layout
    above = RoomPolicy(capacity=Bytes(22 * CHUNK))
    running = frozenset(partials(cache))
    assert tending.collect(layout, above, SystemClock().now(), running).partials == 0
    assert cache.fetch(origin.url).hit is False, "it was all that could go"
    cleared = tending.collect(layout, above, SystemClock().now())
    assert (cleared.partials, cleared.evicted) == (1, ())


def test_two_at_once_where_one_fits(cache: Cache, others: tuple[Origin, Origin]) -> None:
    """The first goes on untouched; the second is refused at once with the numbers, promises nothing, and has its turn
    when the first is whole and nobody uses it."""
    first, second = others
    weights = WeightCache(cache.root, QUICK, ROOM_FOR_ONE, SystemClock(), lambda _: nullcontext())
    asked = threading.Event()

    def pause(_: int) -> str:
        asked.set()
        return ""

    first.faults = pause
    first.open_gate.clear()
    ended: list[Got | CacheError] = []
    running = threading.Thread(target=lambda: ended.append(fetched(weights, first)))
    running.start()
    try:
        assert asked.wait(20)
        refused = fetched(weights, second)
        assert isinstance(refused, NoSpace)
        assert (refused.needed, refused.capacity) == (10 * CHUNK, 16 * CHUNK)
        assert second.data_requests == 0
    finally:
        first.open_gate.set()
        running.join(20)
    (got,) = ended
    assert isinstance(got, Got)
    assert got.path.read_bytes() == first.content
    assert isinstance(fetched(weights, second), NoSpace), "the first is in use"
    got.use.end()
    other = fetched(weights, second)
    assert isinstance(other, Got)
    other.use.end()
    assert [one.digest for one in inventory.cached(weights.layout)] == [other.manifest.digest]
    assert weights.running() == frozenset()


class Ahead(Progress):
    """Of a fetch that nobody waits for."""

    @property
    def awaited(self) -> bool:
        return False


@pytest.mark.parametrize("quotas", [(), (Quota("all", "*", Bytes(27 * CHUNK)),)])
def test_what_is_kept_goes_last_and_for_who_waits(
    cache: Cache, origin: Origin, others: tuple[Origin, Origin], quotas: tuple[Quota, ...]
) -> None:
    """Top models stay, but a start does not fail for them as long as nobody uses them; a prewarm does."""
    room = replace(ROOM_FOR_ONE, capacity=Bytes((60 if quotas else 27) * CHUNK), quotas=quotas)
    weights = WeightCache(cache.root, QUICK, room, SystemClock())
    here = []
    for one in others:
        got = fetched(weights, one)
        assert isinstance(got, Got)
        got.use.end()
        here.append(got.manifest.digest)
    weights.keep(frozenset(here))
    assert isinstance(fetched(weights, origin, Ahead()), NoSpace)
    weights.keep(frozenset(here[:1]))
    got = fetched(weights, origin)
    assert isinstance(got, Got), "who is not kept goes"
    assert {one.digest for one in inventory.cached(weights.layout)} == {here[0], got.manifest.digest}
    assert isinstance(fetched(weights, others[1]), Got), "then who is kept, and not who is in use"
    assert here[0] not in {one.digest for one in inventory.cached(weights.layout)}
    assert isinstance(fetched(weights, others[0]), NoSpace), "both are in use"
    got.use.end()


def fetched(weights: WeightCache, origin: Origin, progress: Progress | None = None) -> Got | CacheError:
    """The weights, or why not."""
    source = source_of(origin.url, {}, QUICK, SystemClock())
    try:
        return weights.fetch(Wanted(origin.url), source, progress or Progress())
    except CacheError as error:
        return error


def test_only_as_many_as_are_missing_oldest_first() -> None:
    """Of the same age by name; none where nothing is missing; all where they are not enough."""
    made = [Leftover("b", Bytes(3), 2.0), Leftover("a", Bytes(3), 2.0), Leftover("old", Bytes(1), 1.0)]
    assert give_up(0, made) == ()
    assert [one.name for one in give_up(1, made)] == ["old"]
    assert [one.name for one in give_up(2, made)] == ["old", "a"]
    assert [one.name for one in give_up(99, made)] == ["old", "a", "b"]


def test_a_folder_that_vanishes_is_no_leftover(tmp_path: Path) -> None:
    """Nor is an empty one anything that gives room."""
    layout = Layout(tmp_path)
    layout.make()
    (layout.partial / "empty").mkdir()
    assert inventory.leftovers(layout, frozenset()) == ()
