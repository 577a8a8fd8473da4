"""One file, or a few, behind each kind of address, with the same faults on the way wherever there is a way."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from coldstart.adapters.sources import source_for
from coldstart.cache.wanting import Got, Progress
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from coldstart.core.cache.selection import split_parts
from coldstart.core.cache.wanted import Access, Wanted
from coldstart.ports import Source
from events.clock import SystemClock
from events.units import Seconds
from tests.support.fake_hub import Hub, running
from tests.support.fake_registry import Registry, serving
from tests.support.faulty_proxy import Faulty, proxied
from tests.support.flaky_origin import Origin, served
from tests.support.s3_store import Store, access

CHUNK = 64 << 10
QUICK = FetchPolicy(chunk_bytes=CHUNK, backoff_first=Seconds(0.01), backoff_most=Seconds(0.05))


def sha256(content: bytes) -> str:
    """As digests are written."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Place:
    """Where content is, how it is asked for, and the proxy on the way (None: there is no way)."""

    one: Wanted
    several: Wanted
    """The folder of it; the one file where there are no lists."""
    faulty: Faulty | None
    cache: Path
    policy: FetchPolicy = QUICK

    def impatient(self, **changes: object) -> None:
        """Another policy."""
        self.policy = replace(self.policy, **changes)  # type: ignore[arg-type]  # of the policy's fields

    def weights(self) -> WeightCache:
        """The cache that fetches."""
        return WeightCache(self.cache, self.policy, RoomPolicy(), SystemClock())

    def source(self, wanted: Wanted) -> Source:
        """What reads it."""
        return source_for(wanted, self.policy, SystemClock())

    def fetch(self, wanted: Wanted) -> Got:
        """Fetch, and end the use."""
        got = self.weights().fetch(wanted, self.source(wanted), Progress())
        got.use.end()
        return got

    def fail(self, fault: str, *numbers: int) -> None:
        """The fault in these requests for data; in all where none is named."""
        if self.faulty is not None:
            self.faulty.faults = lambda number: fault if not numbers or number in numbers else ""

    def shown(self) -> list[Path]:
        """Every file that a replica could be given."""
        return sorted(path for path in self.weights().layout.snapshots.rglob("*") if path.is_file())


@contextlib.contextmanager
def of_file(folder: Path, files: dict[str, bytes], name: str) -> Iterator[Place]:
    """A folder of this machine."""
    root = folder / "origin"
    for relative, content in files.items():
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_bytes(content)
    yield Place(Wanted((root / name).as_uri()), Wanted(root.as_uri()), None, folder / "weights")


@contextlib.contextmanager
def of_http(folder: Path, files: dict[str, bytes], name: str) -> Iterator[Place]:
    """A server of one file, as HTTP has no lists."""
    with (
        served(Origin(files[name])) as origin,
        _through(int(origin.url.split(":")[2].split("/")[0]), files[name]) as way,
    ):
        one = Wanted(f"{way.endpoint}/{name.rpartition('/')[2]}")
        yield Place(one, one, way, folder / "weights")


@contextlib.contextmanager
def of_s3(folder: Path, files: dict[str, bytes], name: str, store: Store) -> Iterator[Place]:
    """A bucket of a real store."""
    bucket = f"b{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"
    for relative, content in files.items():
        store.put(bucket, f"models/one/{relative}", content)
    with _through(store.port, files[name]) as way:
        how = access(way.endpoint)
        one = Wanted(f"s3://{bucket}/models/one/{name}", access=how)
        yield Place(one, Wanted(f"s3://{bucket}/models/one/", access=how), way, folder / "weights")


@contextlib.contextmanager
def of_hf(folder: Path, files: dict[str, bytes], name: str) -> Iterator[Place]:
    """A hub that redirects large files; the way to those is the one with faults."""
    (folder / "hub").mkdir()
    with running(Hub(folder / "hub")) as hub, _through(hub.port, files[name]) as way:
        hub.cdn = f"http://localhost:{way.port}"
        hub.commit(files)
        how = Access(endpoint=hub.endpoint)
        yield Place(
            Wanted(f"hf://org/model/{name}", access=how), Wanted("hf://org/model", access=how), way, folder / "weights"
        )


@contextlib.contextmanager
def of_oci(folder: Path, files: dict[str, bytes], name: str) -> Iterator[Place]:
    """A registry with tokens that redirects blobs; the way to those is the one with faults."""
    with serving(Registry(auth="bearer")) as registry, _through(registry.port, files[name]) as way:
        registry.elsewhere = f"http://localhost:{way.port}"
        tag, parts = name.rpartition("/")[2], split_parts(name)
        registry.push({part: files[part] for part in parts if part in files}, tag)
        registry.push(files, "all")
        how, artifact = Access(endpoint=registry.endpoint), "oci://127.0.0.1/org/model"
        yield Place(
            Wanted(f"{artifact}:{tag}", access=how), Wanted(f"{artifact}:all", access=how), way, folder / "weights"
        )


@contextlib.contextmanager
def _through(port: int, content: bytes) -> Iterator[Faulty]:
    with proxied(Faulty(port, content)) as way:
        yield way
