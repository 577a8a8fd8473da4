"""Secrets come by reference, go to their own host, and stand in no file, error or address."""

from __future__ import annotations

import base64
import re
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def raw(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that says what it likes of each request's head."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b"".join(iter(self.rfile.readline, b"\r\n"))
            self.wfile.write(answer(head))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/m.bin"
        server.shutdown()


def found(words: re.Pattern[bytes], head: bytes) -> bytes:
    """What of a request's head an answer repeats."""
    match = words.search(head)
    return match[0] if match else b"nothing"


@pytest.mark.parametrize("form", [
    b"HTTP/1.1 403 no %s\r\n\r\n", b"HTTP/1.1 500 %s\r\n\r\n", b"HTTP/1.1 499 %s\r\n\r\n", b"%s\r\n\r\n",
    b"HTTP/1.1 302 to\r\nLocation: http://127.0.0.1:%s/x\r\n\r\n", b"HTTP/1.1 302 to\r\nLocation: /a %s\r\n\r\n",
    b"HTTP/1.1 401 who\r\nWWW-Authenticate: Bearer realm=\"http://127.0.0.1:1/%s\"\r\n\r\n",
    b"HTTP/1.1 401 who\r\nWWW-Authenticate: Bearer realm=\"file:///etc/%s\"\r\n\r\n",
    b"HTTP/1.1 401 who\r\nWWW-Authenticate: Bearer realm=\"%s\"\r\n\r\n",
    b"HTTP/1.1 200 ok\r\nContent-Length: 2\r\nContent-Encoding: %s\r\n\r\n{}",
])  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "oci"])
def test_what_a_server_repeats_is_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: bytes, scheme: str
) -> None:
    """Its words may be what it was sent: the error is typed, and has the status and the system's words only."""
    monkeypatch.setenv("A_SECRET", f"me:{HUSH}")
    echoed = re.compile(HUSH.encode() + rb"|(?<=Basic )\S+")
    with raw(lambda head: form % found(echoed, head)) as url:
        access = Access("env:A_SECRET", endpoint=url.removesuffix("/m.bin"))
        wanted = Wanted(url if scheme == "http" else "oci://127.0.0.1/org/m:1", access=access)
        policy = replace(QUICK, retries=1)
        weights = WeightCache(tmp_path / "w", policy, RoomPolicy(), SystemClock())
        with pytest.raises(CacheError) as told:
            weights.fetch(wanted, source_for(wanted, policy, SystemClock()), Progress())
    basic = base64.b64encode(f"me:{HUSH}".encode()).decode()
    assert HUSH not in str(told.value)
    assert basic not in str(told.value)


@pytest.mark.parametrize("value", [f"Bearer {HUSH}\r\nX: y", f"Bearer {HUSH} ☃"])
@pytest.mark.parametrize("scheme", ["http", "hf"])
def test_what_no_header_may_have(monkeypatch: pytest.MonkeyPatch, value: str, scheme: str) -> None:
    """Is told before anything is sent, by its reference."""
    monkeypatch.setenv("A_SECRET", value)
    with pytest.raises(CredentialsMissing, match="env:A_SECRET") as told:
        source_for(Wanted(f"{scheme}://host/m", access=Access("env:A_SECRET")), QUICK, SystemClock())
    assert HUSH not in str(told.value)


@pytest.mark.parametrize("rest", [f"h/m?signed={HUSH} b", f"h:{HUSH}/m", f"h:0/{HUSH}", f"/{HUSH}", f"[{HUSH}/m"])
def test_addresses_of_servers_that_are_none(rest: str) -> None:
    """A space, no port, no host: nothing of the address is repeated."""
    with pytest.raises(UnsupportedSource) as told:
        source_for(Wanted(f"http://{rest}"), QUICK, SystemClock())
    assert HUSH not in str(told.value)


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
