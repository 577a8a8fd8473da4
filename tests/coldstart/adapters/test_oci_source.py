"""Weights from an OCI registry: names and digests of a manifest, who may read, and what is not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coldstart.adapters.oci_login import Login
from coldstart.adapters.sources import source_for
from coldstart.cache.wanting import Got, Progress
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import (
    CredentialsMissing,
    DigestMismatch,
    OddName,
    SourceBroken,
    SourceRefused,
    UnsupportedSource,
)
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.wanted import Access, Wanted
from coldstart.ports import Source
from events.clock import SimulatedClock, SystemClock
from tests.coldstart.adapters.conftest import made
from tests.support import oci_registry
from tests.support.fake_registry import Registry, layer, serving, sha256
from tests.support.weight_origins import CHUNK, QUICK

FILES = {"model.gguf": made(1, 3 * CHUNK + 5), "tokenizer/vocab.json": b"{}"}
Start = Callable[[Registry], Registry]


@pytest.fixture
def start() -> Iterator[Start]:
    """Serves a registry."""
    with ExitStack() as stack:
        yield lambda registry: stack.enter_context(serving(registry))


def wanted(registry: Registry, reference: str = ":v1", credentials: str | None = None) -> Wanted:
    """An address of the repository."""
    return Wanted(
        f"oci://127.0.0.1:{registry.port}/org/model{reference}", access=Access(credentials, endpoint=registry.endpoint)
    )


def source(asked: Wanted) -> Source:
    return source_for(asked, QUICK, SystemClock())


def fetch(asked: Wanted, folder: Path) -> Got:
    """Into a cache of its own, and the use ends."""
    got = WeightCache(folder / "cache", QUICK, RoomPolicy(), SystemClock()).fetch(asked, source(asked), Progress())
    got.use.end()
    return got


def test_names_lengths_and_digests_are_known_before(start: Start) -> None:
    """All of them, from the manifest, whose digest is the version; nothing of the files was read."""
    registry = start(Registry())
    digest = registry.push(FILES)
    listing = source(wanted(registry)).describe()
    assert {file.name: (file.bytes, file.digest) for file in listing.files} == {
        name: (len(content), sha256(content)) for name, content in FILES.items()
    }
    assert (listing.version, listing.pinned, listing.main) == (digest, True, "")
    assert not [path for _, path in registry.asked if "blobs" in path or "store" in path]


@pytest.mark.parametrize("reference", [":v1", "@DIGEST", ":v1@DIGEST"])
def test_an_artifact_is_fetched(start: Start, tmp_path: Path, reference: str) -> None:
    """By tag, by digest, by both; a digest is asked for once, and a hit asks nobody."""
    registry = start(Registry())
    asked = wanted(registry, reference.replace("DIGEST", registry.push(FILES)))
    got = fetch(asked, tmp_path)
    assert {name: (got.path / name).read_bytes() for name in FILES} == FILES
    before = len(registry.asked)
    assert fetch(asked, tmp_path).hit
    assert reference == ":v1" or len(registry.asked) == before


@pytest.mark.parametrize("names", [("a.gguf",), ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf")])
def test_one_file_is_what_the_engine_is_given(start: Start, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Alone, or the first of its parts."""
    registry = start(Registry())
    registry.push({name: made(index, 10) for index, name in enumerate(names)})
    assert fetch(wanted(registry), tmp_path).path.name == names[0]


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_who_may_read(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:  # fmt: skip
    """With the user's name and password; the store behind the registry hears nothing of them."""
    registry = start(Registry(auth=auth, who="me:hush"))
    registry.push(FILES)
    monkeypatch.setenv("RELUME_TEST_OCI", "me:hush")
    got = fetch(wanted(registry, credentials="env:RELUME_TEST_OCI"), tmp_path)
    assert (got.path / "model.gguf").read_bytes() == FILES["model.gguf"]
    assert registry.leaked == []
    monkeypatch.setenv("RELUME_TEST_OCI", "me:wrong")
    with pytest.raises(SourceRefused) as told:
        source(wanted(registry, credentials="env:RELUME_TEST_OCI")).describe()
    assert "wrong" not in str(told.value)


def test_anybody_gets_a_token(start: Start, tmp_path: Path) -> None:
    """For this repository alone, and to read."""
    registry = start(Registry(auth="bearer"))
    registry.push(FILES)
    fetch(wanted(registry), tmp_path)
    (token,) = [query for host, query in registry.asked if host == "token"]
    assert token == "service=here&scope=repository:org/model:pull"


def test_a_token_is_renewed(start: Start) -> None:
    """Before it ends, and not earlier."""
    registry, clock = start(Registry(auth="bearer", life=300.0)), SimulatedClock(1000.0)
    login = Login(registry.endpoint, "org/model", None, QUICK, clock)
    first = dict(login.headers())
    clock.set(1239.0)
    assert login.headers() == first
    clock.set(1241.0)
    assert login.headers() != first
    assert len([1 for host, _ in registry.asked if host == "token"]) == 2


def test_credentials_have_a_form(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user and a password, or nothing."""
    monkeypatch.setenv("RELUME_TEST_OCI", "hush")
    with pytest.raises(CredentialsMissing) as told:
        source(wanted(start(Registry()), credentials="env:RELUME_TEST_OCI"))
    assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    ("manifest", "error", "words"),
    [
        ({"layers": [layer("a", b"", "application/vnd.kitops.modelkit.model.v1.tar")]}, SourceRefused, "archive"),
        ({"layers": [layer("a", b"", "application/vnd.cncf.model.weight.v1.tar+gzip")]}, SourceRefused, "archive"),
        ({"layers": [layer("a", b"", key="other")]}, SourceRefused, "has no name"),
        ({"layers": [layer("a", b"") | {"digest": "md5:1"}]}, SourceBroken, "no SHA-256"),
        ({"layers": [layer("a", b"") | {"size": -1}]}, SourceBroken, "no length"),
        ({"layers": []}, SourceBroken, "no layers"),
        ({"manifests": []}, SourceRefused, "index"),
    ],
)  # fmt: skip
def test_what_is_not_read(start: Start, manifest: dict[str, object], error: type[Exception], words: str) -> None:
    """Each says why."""
    registry = start(Registry())
    registry.put(manifest)
    with pytest.raises(error, match=words):
        source(wanted(registry)).describe()


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[" * 100_000, b'{"layers":[1]}', b'{"layers":[{"size":1e999}]}', b"\xff"]
)
def test_a_manifest_that_is_none(start: Start, body: bytes) -> None:
    """Whatever it is, the error has a type."""
    registry = start(Registry())
    registry.manifests["v1"] = body
    with pytest.raises((SourceBroken, SourceRefused)):
        source(wanted(registry)).describe()


def test_a_registry_that_errs(start: Start, tmp_path: Path) -> None:
    """Another manifest than the digest's, other bytes than the digest's, a name that leaves the folder, no such tag."""
    registry = start(Registry())
    digest = registry.push(FILES)
    registry.manifests[digest] += b" "
    with pytest.raises(SourceBroken, match="another manifest"):
        source(wanted(registry, f"@{digest}")).describe()
    registry.blobs[sha256(FILES["model.gguf"])] = bytes(len(FILES["model.gguf"]))
    with pytest.raises(DigestMismatch):
        fetch(wanted(registry), tmp_path)
    registry.push({"../out": b"x"}, "odd")
    with pytest.raises(OddName):
        fetch(wanted(registry, ":odd"), tmp_path)
    with pytest.raises(SourceRefused, match="404"):
        source(wanted(registry, ":gone")).describe()


@pytest.mark.parametrize(
    "address", ["oci://registry", "oci://r/Name", "oci://r/n@sha256:1", "oci://u:p@r/n", "oci:///n"]
)
def test_addresses_have_a_form(address: str) -> None:
    """A registry, a name in lower case, a whole digest, no secrets."""
    with pytest.raises(UnsupportedSource):
        source(Wanted(address))


@pytest.mark.needs("registry")
@pytest.mark.parametrize("reference", [":v1", "@DIGEST"])
def test_a_real_registry(tmp_path: Path, reference: str) -> None:
    """Pushed as oras does it, fetched in ranges, and found again."""
    with oci_registry.registry_in(tmp_path) as endpoint:
        digest = oci_registry.push(endpoint, "org/model", "v1", FILES)
        address = f"oci://127.0.0.1/org/model{reference.replace('DIGEST', digest)}"
        asked = Wanted(address, access=Access(endpoint=endpoint))
        got = fetch(asked, tmp_path)
        assert {name: (got.path / name).read_bytes() for name in FILES} == FILES
        assert got.manifest.version == digest
        assert fetch(asked, tmp_path).hit
