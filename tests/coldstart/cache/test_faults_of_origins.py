"""Whatever a server does: right content, or a typed error; and never a snapshot of anything else."""

from __future__ import annotations

import errno
import hashlib
import os

import pytest

from coldstart.core.cache.errors import (
    CacheError,
    DigestMismatch,
    NoSpace,
    SourceBroken,
    SourceChanged,
    SourceRefused,
    SourceUnavailable,
    UnsupportedSource,
)
from events.units import Seconds
from tests.coldstart.cache.conftest import CHUNK, Cache, first
from tests.support.flaky_origin import Origin


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


HEALED = ("reset", "short", "5xx", "throttled", "other-range", "whole", "other-etag", "other-length")


@pytest.mark.parametrize("fault", HEALED)
def test_a_fault_that_passes_is_overcome(cache: Cache, origin: Origin, content: bytes, fault: str) -> None:
    """Twice, at the start and in the middle; the content is right."""
    origin.faults = lambda number: fault if number in (1, 5) else ""
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == content
    assert (got.manifest.digest, got.manifest.bytes, got.hit) == (sha256(content), len(content), False)
    assert not got.path.stat().st_mode & 0o222


FOR_EVER = {
    "reset": SourceUnavailable, "short": SourceUnavailable, "5xx": SourceUnavailable, "gone": SourceRefused,
    "forbidden": SourceRefused, "other-etag": SourceChanged, "other-length": SourceChanged,
    "other-range": SourceUnavailable, "throttled-long": SourceUnavailable, "redirect": SourceBroken,
}  # fmt: skip


@pytest.mark.parametrize("fault", FOR_EVER)
def test_a_fault_that_stays_is_told(cache: Cache, origin: Origin, fault: str) -> None:
    """By its type, within bounded tries; nothing is published, and no partial file is taken for content."""
    cache.impatient(retries=4)
    origin.faults = lambda _: fault
    with pytest.raises(FOR_EVER[fault]):
        cache.fetch(origin.url)
    assert cache.snapshots() == []
    assert origin.data_requests <= 40


def test_wrong_bytes_once_are_fetched_anew(cache: Cache, origin: Origin, content: bytes) -> None:
    """With a digest to compare with."""
    origin.faults = first(1, "corrupt")
    got = cache.fetch(origin.url, sha256(content))
    assert got.path.read_bytes() == content


@pytest.mark.parametrize("vouched", [False, True])
def test_wrong_bytes_for_ever_are_refused(cache: Cache, origin: Origin, content: bytes, vouched: bool) -> None:
    """By the digest that was asked for, or that the server itself vouches for (RFC 9530); nothing is kept."""
    origin.vouch = vouched
    origin.faults = lambda number: "corrupt" if number % 11 == 3 else ""
    with pytest.raises(DigestMismatch, match=sha256(content)):
        cache.fetch(origin.url, None if vouched else sha256(content))
    assert cache.snapshots() == []
    assert list(cache.weights().layout.partial.iterdir()) == []


def test_a_trickle_is_given_up_and_read_anew(cache: Cache, origin: Origin, content: bytes) -> None:
    """A byte now and then is a stall, though the connection is never silent."""
    cache.impatient(stall=Seconds(0.4))
    origin.faults = first(1, "slow")
    assert cache.fetch(origin.url).path.read_bytes() == content


def test_silence_is_given_up(cache: Cache, origin: Origin, content: bytes) -> None:
    """After the stall bound, not after the server's own."""
    cache.impatient(stall=Seconds(0.4))
    origin.faults = first(1, "silent")
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == content
    assert got.seconds < 7


def test_retry_after_is_kept(cache: Cache, origin: Origin, content: bytes) -> None:
    """A second, where one would have waited a hundredth. Who refuses one connection of two may just take no second."""
    origin.faults = first(2, "throttled")
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == content
    assert got.seconds >= 1.0


def test_a_server_without_ranges_is_read_in_one_stream(cache: Cache, origin: Origin, content: bytes) -> None:
    """200 to the first question."""
    origin.ranges = False
    assert cache.fetch(origin.url).path.read_bytes() == content


def test_a_stream_that_breaks_begins_anew(cache: Cache, origin: Origin, content: bytes) -> None:
    """There is nothing to go on from."""
    origin.ranges = False
    origin.faults = lambda number: "reset" if number == 1 else ""
    assert cache.fetch(origin.url).path.read_bytes() == content


def test_content_that_changes_meanwhile_is_never_mixed(cache: Cache, origin: Origin, content: bytes) -> None:
    """Half of the old, then the new: the new, whole."""
    new = bytes(reversed(content))

    def change(number: int) -> str:
        if number == 4:
            origin.content, origin.etag = new, '"v2"'
        return ""

    origin.faults = change
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == new
    assert got.manifest.version == '"v2"'


def test_without_an_etag_time_and_length_guard(cache: Cache, origin: Origin, content: bytes) -> None:
    """A change of Last-Modified in the middle is seen in the answers."""
    origin.etag, origin.modified = None, "Mon, 01 Jan 2024 00:00:00 GMT"
    new = bytes(len(content))

    def change(number: int) -> str:
        if number == 3:
            origin.content, origin.modified = new, "Tue, 02 Jan 2024 00:00:00 GMT"
        return ""

    origin.faults = change
    assert cache.fetch(origin.url).path.read_bytes() == new


@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_every_length(cache: Cache, origin: Origin, length: int) -> None:
    """Around the edges of chunks, and nothing at all."""
    origin.content = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == origin.content
    assert got.manifest.digest == sha256(origin.content)


def test_headers_are_sent_and_never_kept(cache: Cache, origin: Origin) -> None:
    """A secret of the caller, and one in the address."""
    got = cache.fetch(f"{origin.url}?signature=hush", headers={"Authorization": "Bearer hush-hush"})
    assert {sent.get("Authorization") for sent in origin.headers} == {"Bearer hush-hush"}
    kept = b"".join(path.read_bytes() for path in cache.root.rglob("*") if path.is_file() and path != got.path)
    assert b"hush" not in kept.replace(origin.content, b"")
    assert "hush" not in got.manifest.source


@pytest.mark.parametrize("address", ["ftp://x/y", "model.gguf", "http://", "file://elsewhere/x", "http://[bad"])
def test_addresses_that_nobody_reads(cache: Cache, address: str) -> None:
    """Are refused before anything is asked."""
    with pytest.raises(UnsupportedSource):
        cache.fetch(address)


@pytest.mark.parametrize("ranges", [True, False])
def test_patience_has_an_end(cache: Cache, origin: Origin, ranges: bool) -> None:
    """A source that flows, and too slowly; what was verified in parts is kept for the next try."""
    origin.ranges, origin.rate = ranges, CHUNK / 0.2
    cache.impatient(patience=Seconds(0.5), connections_first=1, connections_most=1)
    with pytest.raises(SourceUnavailable, match="not whole after 500ms"):
        cache.fetch(origin.url)
    origin.rate = None
    cache.impatient(patience=Seconds(60.0))
    got = cache.fetch(origin.url)
    assert got.path.read_bytes() == origin.content
    assert (got.transferred < len(origin.content)) is ranges


@pytest.mark.parametrize("fails_at", [0, 3])
def test_a_disk_that_fills_up_meanwhile(
    cache: Cache, origin: Origin, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Where nothing can be allocated ahead: told at the write, the partial file is gone, and the next is whole."""
    written: list[int] = []
    real = os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        written.append(offset)
        if len(written) == fails_at + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content, offset)

    def fallocate(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr("coldstart.cache.partial.os.posix_fallocate", fallocate)
        patch.setattr(
            "coldstart.cache.partial.os.pwrite",
            lambda *given: pwrite(*given) if given[2] or len(given[1]) > 99 else real(*given),
        )
        with pytest.raises(NoSpace, match="No space left"):
            cache.fetch(origin.url)
    assert list(cache.weights().layout.partial.iterdir()) == []
    assert cache.snapshots() == []
    assert cache.fetch(origin.url).path.read_bytes() == origin.content


def test_nobody_answers(cache: Cache) -> None:
    """A port without a server: told after the retries."""
    cache.impatient(retries=2)
    with pytest.raises(SourceUnavailable, match="refused"):
        cache.fetch("http://127.0.0.1:1/x")


@pytest.mark.parametrize("missing", ["/nowhere/at/all", "/"])
def test_files_that_are_none(cache: Cache, missing: str) -> None:
    """A missing one, and a folder."""
    with pytest.raises(CacheError):
        cache.fetch(f"file://{missing}")
