"""Secrets come by reference, go to their own host, and stand in no file, error or address."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.references import secret
from coldstart.adapters.sources import source_for
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import CacheError, CredentialsMissing, ExtraMissing, SourceRefused, UnsupportedSource
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.wanted import Access
from events.clock import SystemClock
from tests.coldstart.adapters.conftest import Open, made
from tests.support.flaky_origin import Origin, served
from tests.support.s3_store import SECRET_KEY
from tests.support.weight_origins import CHUNK, QUICK

HUSH = "hush-hush-hush"


def test_where_a_reference_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a variable or a file, without the line feed that editors leave."""
    monkeypatch.setenv("A_SECRET", f"{HUSH}\n")
    (tmp_path / "secret").write_text(f"  {HUSH}\n")
    assert secret("env:A_SECRET") == HUSH
    assert secret(f"file:{tmp_path}/secret") == HUSH


@pytest.mark.parametrize(
    "reference", ["env:NOT_SET_ANYWHERE", "env:", "file:/nowhere/at/all", "file:relative", HUSH, ""]
)
def test_references_that_lead_nowhere(reference: str) -> None:
    """The error names a reference, and never what might be the secret itself."""
    with pytest.raises(CredentialsMissing) as told:
        secret(reference)
    assert HUSH not in str(told.value)


@pytest.fixture
def elsewhere() -> Iterator[Origin]:
    """Another host (by its name) that an origin redirects to."""
    with served(Origin(made(5, 3 * CHUNK))) as running:
        yield running


def test_headers_do_not_follow_a_redirect(tmp_path: Path, elsewhere: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authorization and any other header by reference stay with the host they are for."""
    monkeypatch.setenv("MODELS_AUTH", f"Bearer {HUSH}")
    with served(Origin(b"")) as origin:
        target = elsewhere.url.replace("127.0.0.1", "localhost")
        origin.redirect = target
        access = Access(credentials="env:MODELS_AUTH", headers=(("X-Key", "env:MODELS_AUTH"),))
        wanted = Wanted(origin.url, access=access)
        weights = WeightCache(tmp_path / "w", QUICK, RoomPolicy(), SystemClock())
        got = weights.fetch(wanted, source_for(wanted, QUICK, SystemClock()), Progress())
        got.use.end()
    assert got.path.read_bytes() == elsewhere.content
    assert {sent.get("Authorization") for sent in origin.headers} == {f"Bearer {HUSH}"}
    assert {sent.get("X-Key") for sent in origin.headers} == {f"Bearer {HUSH}"}
    assert {(sent.get("Authorization"), sent.get("X-Key")) for sent in elsewhere.headers} == {(None, None)}
    assert len(origin.headers) <= 1 + QUICK.connections_most, "where it redirects to is remembered"
    kept = b"".join(
        path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file() and path.suffix == ".json"
    )
    assert HUSH.encode() not in kept


@pytest.mark.needs("versitygw")
def test_a_store_keeps_its_secrets(place: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither manifests nor errors hold the key; a wrong one is refused, and not asked again and again."""
    at = place("s3", {"m.bin": made(1, 2 * CHUNK)}, "m.bin")
    at.fetch(at.one)
    kept = b"".join(path.read_bytes() for path in at.weights().layout.manifests.iterdir())
    assert SECRET_KEY.encode() not in kept
    monkeypatch.setenv("RELUME_TEST_S3", f"relume-test:{HUSH}-wrong")
    assert at.faulty is not None
    asked = len(at.faulty.asked)
    with pytest.raises(SourceRefused) as told:
        at.fetch(replace(at.one, address=at.one.address.replace("m.bin", "other.bin")))
    assert HUSH not in str(told.value)
    assert len(at.faulty.asked) - asked <= 3


@pytest.mark.needs("versitygw")
def test_a_form_that_is_not_the_store_s(place: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret without its key is told by its reference."""
    at = place("s3", {"m.bin": b"x"}, "m.bin")
    monkeypatch.setenv("RELUME_TEST_S3", HUSH)
    with pytest.raises(CredentialsMissing, match="RELUME_TEST_S3") as told:
        at.fetch(at.one)
    assert HUSH not in str(told.value)


@pytest.mark.parametrize(
    ("address", "library", "extra"), [("s3://b/k", "obstore", "stores"), ("gs://b/k", "obstore", "stores"),
                                      ("az://c/k", "obstore", "stores"), ("hf://o/n", "huggingface_hub", "hf")],
)  # fmt: skip
def test_an_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, address: str, library: str, extra: str
) -> None:
    """With what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ExtraMissing) as told:
        source_for(Wanted(address), QUICK, SystemClock())
    assert f"relume[{extra}]" in told.value.remedy


@pytest.mark.needs("versitygw")
@pytest.mark.parametrize("address", ["s3://", "s3://user@bucket/k", "s3://bucket/k?versionId=1", "s3:///k"])
def test_addresses_of_stores_that_are_none(address: str) -> None:
    """No bucket, a user, a query."""
    with pytest.raises(UnsupportedSource):
        source_for(Wanted(address), QUICK, SystemClock())


@pytest.mark.needs("versitygw")
@pytest.mark.parametrize("address", ["gs://bucket/model/", "az://container/model/"])
def test_other_clouds_are_opened_by_the_same_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Nobody answers there: a typed error after bounded tries, without the secret."""
    monkeypatch.setenv("KEY", "account:aHVzaA==")
    access = Access(credentials="env:KEY" if address.startswith("az") else "none", endpoint="http://127.0.0.1:1")
    policy = replace(QUICK, retries=1)
    wanted = Wanted(address, access=access)
    weights = WeightCache(tmp_path / "w", policy, RoomPolicy(), SystemClock())
    with pytest.raises(CacheError) as told:
        weights.fetch(wanted, source_for(wanted, policy, SystemClock()), Progress())
    assert "aHVzaA" not in str(told.value)


@pytest.mark.needs("versitygw")
def test_the_usual_environment_variables_of_a_store(place: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without references, what other tools read is read."""
    at = place("s3", {"m.bin": made(1, 100)}, "m.bin")
    how = at.one.access
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "relume-test"), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", how.endpoint or ""), ("AWS_ALLOW_HTTP", "true"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    assert at.fetch(replace(at.one, access=Access())).path.read_bytes() == made(1, 100)
