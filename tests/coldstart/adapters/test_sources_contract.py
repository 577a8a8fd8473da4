"""Whatever the source and whatever happens on the way: right content, or a typed error; never a snapshot of anything
else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstart.core.cache.errors import (
    CacheError,
    DigestMismatch,
    SourceChanged,
    SourceRefused,
    SourceUnavailable,
)
from events.units import Seconds
from tests.coldstart.adapters.conftest import KINDS, REMOTE, Open, made
from tests.support.weight_origins import CHUNK, sha256

NAME = "model.gguf"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 1, CHUNK, 3 * CHUNK + 1])
def test_the_content_is_the_content(place: Open, kind: str, length: int) -> None:
    """Around the edges of chunks and of nothing at all; read-only, under its name, with its digest; then a hit."""
    content = made(1, length)
    at = place(kind, {NAME: content}, NAME)
    got = at.fetch(at.one)
    assert (got.path.name, got.path.read_bytes(), got.manifest.digest) == (NAME, content, sha256(content))
    assert not got.path.stat().st_mode & 0o222
    again = at.fetch(at.one)
    assert (again.hit, again.path, again.note) == (True, got.path, "")


HEALED = ("reset", "short", "5xx", "whole", "other-etag", "other-length", "other-range")


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("fault", HEALED)
def test_a_fault_that_passes_is_overcome(place: Open, kind: str, content: bytes, fault: str) -> None:
    """At the start and in the middle."""
    at = place(kind, {NAME: content}, NAME)
    at.fail(fault, 1, 5)
    assert at.fetch(at.one).path.read_bytes() == content


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("fault", ["slow", "silent"])
def test_what_stands_still_is_read_anew(place: Open, kind: str, content: bytes, fault: str) -> None:
    """A byte now and then, and nothing at all."""
    at = place(kind, {NAME: content}, NAME)
    at.impatient(stall=Seconds(0.3))
    at.fail(fault, 0)
    got = at.fetch(at.one)
    assert got.path.read_bytes() == content
    assert got.seconds < 15


FOR_EVER = {
    "reset": (SourceUnavailable,), "short": (SourceUnavailable,), "5xx": (SourceUnavailable,),
    "gone": (SourceRefused,), "forbidden": (SourceRefused,), "throttled-long": (SourceUnavailable,),
    "other-range": (SourceUnavailable,), "other-length": (SourceChanged, SourceUnavailable),
}  # fmt: skip


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("fault", FOR_EVER)
def test_a_fault_that_stays_is_told(place: Open, kind: str, content: bytes, fault: str) -> None:
    """By its type, within bounded tries, and nothing is shown."""
    at = place(kind, {NAME: content}, NAME)
    at.impatient(retries=4, retries_share=0.0)
    at.fail(fault)
    with pytest.raises(FOR_EVER[fault]):
        at.fetch(at.one)
    assert at.shown() == []
    assert at.faulty is not None
    assert at.faulty.data_requests <= 60


@pytest.mark.parametrize("kind", REMOTE)
def test_wrong_bytes_once_are_fetched_anew(place: Open, kind: str, content: bytes) -> None:
    """Seen by the digest."""
    at = place(kind, {NAME: content}, NAME)
    at.fail("corrupt", 2)
    assert at.fetch(replace(at.one, digest=sha256(content))).path.read_bytes() == content


@pytest.mark.parametrize("kind", REMOTE)
def test_wrong_bytes_for_ever_are_refused(place: Open, kind: str, content: bytes) -> None:
    """By the digest that was asked for; nothing is kept."""
    at = place(kind, {NAME: content}, NAME)
    at.fail("corrupt")
    with pytest.raises(DigestMismatch):
        at.fetch(replace(at.one, digest=sha256(content)))
    assert at.shown() == []
    assert list(at.weights().layout.partial.iterdir()) == []


@pytest.mark.needs("hf")
def test_the_hub_vouches_for_large_files(place: Open, content: bytes) -> None:
    """Without a digest of one's own, wrong bytes are refused all the same."""
    at = place("hf", {NAME: content}, NAME)
    at.fail("corrupt")
    with pytest.raises(DigestMismatch):
        at.fetch(at.one)
    assert at.shown() == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_is_told(place: Open, kind: str) -> None:
    """By a refusal that names the address."""
    at = place(kind, {NAME: b"x"}, NAME)
    missing = replace(at.one, address=at.one.address.replace(NAME, "missing.gguf"))
    if kind == "http":
        at.faulty.upstream = 1  # type: ignore[union-attr]  # nobody listens there
        at.impatient(retries=1)
    with pytest.raises((SourceRefused, SourceUnavailable), match=r"missing\.gguf|model"):
        at.fetch(missing)


@pytest.mark.parametrize("kind", REMOTE)
def test_the_rest_is_fetched_by_the_next_try(place: Open, kind: str, content: bytes) -> None:
    """What was verified before a failure is not asked for again. (The sixth may be on its way to the disk when the
    seventh fails.)"""
    at = place(kind, {NAME: content}, NAME)
    at.impatient(retries=0, retries_share=0.0, connections_first=1, connections_most=1)
    at.fail("5xx", 6)
    with pytest.raises(CacheError):
        at.fetch(at.one)
    got = at.fetch(at.one)
    assert got.path.read_bytes() == content
    assert len(content) - got.transferred in (5 * CHUNK, 6 * CHUNK)


@pytest.mark.parametrize("kind", REMOTE)
def test_throttled_it_waits(place: Open, kind: str, content: bytes) -> None:
    """429 with Retry-After is kept, where the library tells it; the content is right anyway."""
    at = place(kind, {NAME: content}, NAME)
    at.fail("throttled", 0, 1)  # both of the first two connections
    got = at.fetch(at.one)
    assert got.path.read_bytes() == content
    assert kind == "s3" or got.seconds >= 1.0
