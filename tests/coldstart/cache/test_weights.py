"""Hits, verification, room, uses: what a cache promises to those who rely on it."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_of
from coldstart.cache import holding, inventory, tending
from coldstart.cache.flights import Flights
from coldstart.cache.manifests import manifests, write_manifest
from coldstart.cache.wanting import Progress, Wanted
from coldstart.core.cache.errors import FolderTaken, InUse, NoSpace, NotCached, Pinned, SourceUnavailable, TooLarge
from coldstart.core.cache.policy import RoomPolicy
from events.clock import SystemClock
from events.units import Bytes, Instant, Seconds
from tests.coldstart.cache.conftest import CHUNK, Cache
from tests.support.flaky_origin import Origin, served


def test_a_hit_transfers_nothing(cache: Cache, origin: Origin) -> None:
    """One question for the version; with a digest, none at all."""
    fetched = cache.fetch(origin.url)
    data, asked = origin.data_requests, origin.asked
    again = cache.fetch(origin.url)
    assert (again.hit, again.path, again.note) == (True, fetched.path, "")
    assert (origin.data_requests, origin.asked) == (data, asked + 1)
    assert cache.fetch(origin.url, fetched.manifest.digest).hit
    assert origin.asked == asked + 1


def test_a_dead_origin_does_not_break_a_hit(cache: Cache, content: bytes) -> None:
    """It is said that its newest is not known."""
    with served(Origin(content)) as origin:
        cache.fetch(origin.url)
    again = cache.fetch(origin.url)
    assert again.hit
    assert "could not be asked" in again.note


def test_a_new_version_is_fetched(cache: Cache, origin: Origin, content: bytes) -> None:
    """And the old snapshot stays for who reads it, until it is collected."""
    old = cache.fetch(origin.url)
    origin.content, origin.etag = b"new" * 1000, '"v2"'
    new = cache.fetch(origin.url)
    assert not new.hit
    assert new.path.read_bytes() == origin.content
    assert old.path.read_bytes() == content
    tending.collect(cache.weights().layout, RoomPolicy(), SystemClock().now())
    assert cache.snapshots() == [new.path]


def test_the_same_content_from_another_address_is_there(cache: Cache, origin: Origin, content: bytes) -> None:
    """By its digest: nothing is fetched, one blob."""
    fetched = cache.fetch(origin.url)
    sent = origin.sent
    other = cache.fetch(f"{origin.url}?mirror=2", fetched.manifest.digest)
    assert other.path.read_bytes() == content
    assert origin.sent == sent
    assert len(inventory.cached(cache.weights().layout)) == 1


def test_a_file_of_this_machine(cache: Cache, tmp_path: Path, content: bytes) -> None:
    """Is copied and verified; whoever writes the original later does not change what was verified."""
    original = tmp_path / "model.gguf"
    original.write_bytes(content)
    got = cache.fetch(original.as_uri())
    with original.open("r+b") as file:
        file.write(b"overwritten")
    assert got.path.read_bytes() == content
    assert not cache.fetch(original.as_uri()).hit


def rot(path: Path) -> None:
    """One bit."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(CHUNK + 5)
        byte = file.read(1)[0]
        file.seek(CHUNK + 5)
        file.write(bytes([byte ^ 1]))
    path.chmod(0o444)


def shrink(path: Path) -> None:
    """Half of it is gone."""
    os.truncate(path, path.stat().st_size // 2)


def vanish(path: Path) -> None:
    """The blob is gone."""
    path.unlink()


@pytest.mark.parametrize("harm", [rot, shrink, vanish])
def test_harm_is_found_at_the_hit_and_only_that_blob_is_fetched_anew(cache: Cache, origin: Origin, harm) -> None:
    """A bit, half a file, all of it; a second model is not touched."""
    with served(Origin(b"other" * 20_000)) as other:
        cache.fetch(other.url)
        got = cache.fetch(origin.url)
        harm(cache.weights().layout.blob(got.manifest.digest))
        sent = other.sent
        again = cache.fetch(origin.url, got.manifest.digest)
        assert not again.hit
        assert again.path.read_bytes() == origin.content
        assert cache.fetch(other.url).hit
        assert other.sent == sent


def test_verify_finds_rot_that_hides(cache: Cache, origin: Origin) -> None:
    """With the old time of change, so that no hit would see it: quarantined, and fetched anew."""
    got = cache.fetch(origin.url)
    layout = cache.weights().layout
    blob = layout.blob(got.manifest.digest)
    told = blob.stat()
    rot(blob)
    os.utime(blob, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert tending.verify(layout, inventory.cached(layout)) == (got.manifest.digest,)
    assert [path.name for path in layout.quarantine.iterdir()] == [blob.name]
    assert cache.snapshots() == []
    assert cache.fetch(origin.url).path.read_bytes() == origin.content
    assert tending.verify(layout, inventory.cached(layout)) == ()
    now = SystemClock().now()
    tending.collect(layout, RoomPolicy(), Instant(now + tending.QUARANTINE_KEPT - 60))
    assert len(list(layout.quarantine.iterdir())) == 1
    tending.collect(layout, RoomPolicy(), Instant(now + tending.QUARANTINE_KEPT + 60))
    assert list(layout.quarantine.iterdir()) == []
    assert cache.fetch(origin.url).hit


def files(tmp_path: Path, *sizes: int) -> list[str]:
    """Addresses of files of so many KiB, each with content of its own."""
    made = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"model-{number}"
        path.write_bytes(bytes([number]) * (size << 10))
        made.append(path.as_uri())
    return made


def sources(cache: Cache) -> list[str]:
    return sorted(Path(m.source).name for one in inventory.cached(cache.weights().layout) for m in one.manifests)


def test_the_third_of_three_evicts_the_right_one(cache: Cache, tmp_path: Path) -> None:
    """A cap of 10 and three of 4: the one that was asked for less often goes."""
    cache.room = RoomPolicy(capacity=Bytes(1000 << 10))
    one, two, three = files(tmp_path, 400, 400, 400)
    for address in (one, two, one, one):
        cache.fetch(address)
    for path, manifest in manifests(cache.weights().layout):  # a busy machine fetches one of equals ten times slower
        write_manifest(path, replace(manifest, fetch_seconds=Seconds(1.0)))
    cache.fetch(three)
    assert sources(cache) == ["model-0", "model-2"]


def test_what_is_in_use_is_never_evicted(cache: Cache, tmp_path: Path) -> None:
    """Nor what is pinned; without another, the fetch is refused with the numbers, and nothing is gone."""
    cache.room = RoomPolicy(capacity=Bytes(1000 << 10))
    one, two, three = files(tmp_path, 400, 400, 400)
    layout = cache.weights().layout
    first = cache.fetch(one)
    use = holding.take_use(layout, first.manifest.snapshot)
    assert use is not None
    second = cache.fetch(two)
    holding.pin(layout, second.manifest.snapshot, wanted=True)
    with pytest.raises(NoSpace) as refused:
        cache.fetch(three)
    assert refused.value.needed == 400 << 10
    assert sources(cache) == ["model-0", "model-1"]
    with pytest.raises(InUse):
        inventory.evict(layout, inventory.named(layout, one))
    with pytest.raises(Pinned):
        inventory.evict(layout, inventory.named(layout, two))
    use.end()
    cache.fetch(three)
    assert sources(cache) == ["model-1", "model-2"]


def test_larger_than_the_cap_is_refused_before_the_first_byte(cache: Cache, origin: Origin) -> None:
    """With both numbers."""
    cache.room = RoomPolicy(capacity=Bytes(CHUNK))
    with pytest.raises(TooLarge, match=f"{len(origin.content)} bytes are needed.* {CHUNK} bytes"):
        cache.fetch(origin.url)
    assert origin.data_requests == 0


def test_the_watermarks(cache: Cache, tmp_path: Path) -> None:
    """Above 85 % of the capacity, down to 75 %."""
    for address in files(tmp_path, 300, 300, 300):
        cache.fetch(address)
    cleared = tending.collect(cache.weights().layout, RoomPolicy(capacity=Bytes(1000 << 10)), SystemClock().now())
    assert (len(cleared.evicted), len(sources(cache))) == (1, 2)
    assert cleared.bytes >= 300 << 10


def test_the_writer_of_a_folder_is_one(cache: Cache, origin: Origin) -> None:
    """The second is told the first's pid; a hit needs no writer."""
    got = cache.fetch(origin.url)
    with holding.writing(cache.weights().layout):
        assert cache.fetch(origin.url).path == got.path
        with pytest.raises(FolderTaken) as refused:
            cache.fetch(f"{origin.url}?other")
    assert refused.value.pid == os.getpid()


def test_a_hundred_callers_and_one_fetch(cache: Cache, origin: Origin) -> None:
    """All get the content and a use of their own; the origin is read once, and afterwards nobody holds it."""
    cache.impatient(hedge_after=1e9)
    flights = Flights(cache.weights())
    origin.open_gate.clear()
    source = source_of(origin.url, {}, cache.fetching, SystemClock())
    with ThreadPoolExecutor(100) as pool:
        calls = [pool.submit(flights.fetch, Wanted(origin.url), source, Seconds(60.0)) for _ in range(100)]
        origin.open_gate.set()
        answers = [call.result(60) for call in calls]
    assert max(Counter(origin.starts).values()) == 1
    assert {answer.path.read_bytes() for answer in answers} == {origin.content}
    layout = cache.weights().layout
    for answer in answers:
        assert holding.used(layout, answer.manifest.snapshot)
        answer.use.end()
    assert not holding.used(layout, answers[0].manifest.snapshot)


def test_who_leaves_does_not_stop_the_fetch(cache: Cache, origin: Origin) -> None:
    """A caller with no patience gives up; the weights come, and the next one has them."""
    cache.impatient(hedge_after=1e9)
    flights = Flights(cache.weights())
    origin.open_gate.clear()
    source = source_of(origin.url, {}, cache.fetching, SystemClock())
    with pytest.raises(TimeoutError):
        flights.fetch(Wanted(origin.url), source, Seconds(0.2))
    origin.open_gate.set()
    got = flights.fetch(Wanted(origin.url), source, Seconds(60.0))
    assert got.path.read_bytes() == origin.content
    assert max(Counter(origin.starts).values()) == 1


def test_a_flight_that_fails_is_told_to_all_and_forgotten(cache: Cache, origin: Origin) -> None:
    """The next one tries anew."""
    cache.impatient(retries=0, retries_share=0.0)
    flights = Flights(cache.weights())
    source = source_of(origin.url, {}, cache.fetching, SystemClock())
    origin.faults = lambda _: "5xx"
    with pytest.raises(SourceUnavailable):
        flights.fetch(Wanted(origin.url), source, Seconds(60.0))
    origin.faults = lambda _: ""
    assert flights.fetch(Wanted(origin.url), source, Seconds(60.0)).path.read_bytes() == origin.content


def test_memory_does_not_follow_the_size(cache: Cache, tmp_path: Path) -> None:
    """A chunk a connection, those that wait for the digest, and one more; the threads end with the fetch."""
    (address,) = files(tmp_path, 16 << 10)
    tracemalloc.start()
    try:
        cache.fetch(address)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bound = (cache.fetching.connections_most + cache.fetching.waiting_chunks + 1) * CHUNK
    assert peak < bound + (1 << 20)
    for thread in [one for one in threading.enumerate() if one.name.startswith("weights-")]:
        thread.join(20)
        assert not thread.is_alive()


def test_progress_adds_up(cache: Cache, origin: Origin) -> None:
    """Each byte counts once."""
    seen: list[int] = []

    class Seen(Progress):
        def verified(self, more: int) -> None:
            seen.append(more)

    source = source_of(origin.url, {}, cache.fetching, SystemClock())
    cache.weights().fetch(Wanted(origin.url), source, Seen()).use.end()
    assert sum(seen) == len(origin.content)


def test_unknown_names(cache: Cache, origin: Origin) -> None:
    """By address, by digest and its beginning; others are not cached."""
    got = cache.fetch(origin.url)
    layout = cache.weights().layout
    for name in (origin.url, got.manifest.digest, got.manifest.digest[:15]):
        assert inventory.named(layout, name).digest == got.manifest.digest
    for name in ("http://elsewhere/x", got.manifest.digest[7:12], "sha256:"):
        with pytest.raises(NotCached):
            inventory.named(layout, name)


def test_leftovers_are_collected(cache: Cache, origin: Origin) -> None:
    """A blob that no manifest names, a manifest without its blob, a fetch of long ago, trash."""
    got = cache.fetch(origin.url)
    layout = cache.weights().layout
    layout.manifest(origin.url).unlink()
    (layout.partial / "old").mkdir()
    (layout.partial / "old" / "data").write_bytes(b"x" * 5000)
    (layout.trash / "x").write_bytes(b"x")
    later = Instant(SystemClock().now() + 8 * 86400)
    cleared = tending.collect(layout, RoomPolicy(), later)
    assert (cleared.partials, cleared.orphans) == (1, 2)
    assert not got.path.exists()
    assert inventory.space(layout, RoomPolicy()).used == 0
