"""Folders, prefixes and repositories: all files or none, shared blobs, and only what changed is fetched anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.cache import inventory, tending
from coldstart.cache.wanting import Progress
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import Incomplete, NotCached, NothingLeft, OddName, SourceUnavailable
from coldstart.core.cache.policy import RoomPolicy
from events.clock import SystemClock
from events.units import Bytes
from tests.coldstart.adapters.conftest import LISTED, Open, made
from tests.support.weight_origins import CHUNK, sha256

FILES = {
    "config.json": b'{"layers": 2}',
    "tokenizer/vocab.txt": b"a\nb\n",
    "empty.txt": b"",
    "model-00001-of-00002.safetensors": made(1, 3 * CHUNK + 5),
    "model-00002-of-00002.safetensors": made(2, 2 * CHUNK),
}
NAME = "model-00001-of-00002.safetensors"


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", LISTED)
def test_a_folder_comes_whole(place: Open, kind: str) -> None:
    """All files under their names, read-only, with the digest of the set; then a hit."""
    at = place(kind, FILES, NAME)
    got = at.fetch(at.several)
    assert read(got.path) == FILES
    lines = "".join(f"{sha256(content)[7:]}  {name}\n" for name, content in sorted(FILES.items()))
    assert got.manifest.digest == sha256(lines.encode())
    assert not any(path.stat().st_mode & 0o222 for path in got.path.rglob("*") if path.is_file())
    again = at.fetch(at.several)
    assert (again.hit, again.path) == (True, got.path)
    assert at.fetch(replace(at.several, digest=got.manifest.digest)).hit


@pytest.mark.parametrize("kind", LISTED)
def test_include_and_exclude(place: Open, kind: str) -> None:
    """Another choice is other weights, beside the first, with the same blobs."""
    at = place(kind, FILES, NAME)
    at.fetch(at.several)
    some = replace(at.several, include=("*.safetensors", "*.json"), exclude=("model-00002*",))
    got = at.fetch(some)
    assert set(read(got.path)) == {"config.json", NAME}
    assert got.transferred == 0
    with pytest.raises(NothingLeft):
        at.fetch(replace(at.several, include=("*.bin",)))


@pytest.mark.parametrize("kind", LISTED[1:])
def test_a_failure_in_the_middle_keeps_what_is_whole(place: Open, kind: str) -> None:
    """Nothing is shown of half a set; the next try fetches the rest. (A file has no way on which it could fail.)"""
    at = place(kind, FILES, NAME)
    at.impatient(retries=0, retries_share=0.0, connections_first=1, connections_most=1)
    assert at.faulty is not None
    at.fail("5xx", 4)
    with pytest.raises(SourceUnavailable):
        at.fetch(at.several)
    assert at.shown() == []
    got = at.fetch(at.several)
    assert read(got.path) == FILES
    assert 0 < got.transferred < sum(map(len, FILES.values()))


def test_only_what_changed_is_fetched_anew(place: Open) -> None:
    """A new version of one file: the others are linked, the old snapshot stays until it is collected."""
    at = place("file", FILES, NAME)
    first = at.fetch(at.several)
    origin = Path(at.several.address.removeprefix("file://"))
    (origin / "config.json").write_bytes(b'{"layers": 3}')
    second = at.fetch(at.several)
    assert (second.hit, second.transferred) == (False, len(b'{"layers": 3}'))
    assert read(second.path)["config.json"] == b'{"layers": 3}'
    assert (first.path / NAME).stat().st_ino == (second.path / NAME).stat().st_ino
    tending.collect(at.weights().layout, RoomPolicy(), SystemClock().now())
    assert not first.path.exists()
    assert read(second.path)[NAME] == FILES[NAME]


def test_one_rotten_shard_costs_one_shard(place: Open) -> None:
    """Not the whole model: the others are not fetched again, also after leftovers were collected."""
    at = place("file", FILES, NAME)
    got = at.fetch(at.several)
    layout = at.weights().layout
    blob = layout.blob(sha256(FILES[NAME]))
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(FILES[NAME])))
    assert tending.verify(layout, inventory.cached(layout)) == (sha256(FILES[NAME]),)
    assert at.shown() == []
    (half,) = inventory.cached(layout)
    assert not half.whole
    tending.collect(layout, RoomPolicy(), SystemClock().now())
    again = at.fetch(replace(at.several, digest=got.manifest.digest))
    assert read(again.path) == FILES
    assert again.transferred == len(FILES[NAME])


def test_models_share_blobs(place: Open, tmp_path: Path) -> None:
    """Two folders with a file in common hold it once; evicting one leaves the other whole."""
    at = place("file", FILES, NAME)
    other = tmp_path / "tuned"
    other.mkdir()
    (other / "weights.safetensors").write_bytes(FILES[NAME])
    (other / "adapter.bin").write_bytes(made(7, 1000))
    layout = at.weights().layout
    first = at.fetch(at.several)
    second = at.fetch(replace(at.several, address=other.as_uri()))
    assert (first.path / NAME).stat().st_ino == (second.path / "weights.safetensors").stat().st_ino
    distinct = {*FILES.values(), made(7, 1000)}
    assert len([path for path in (layout.root / "blobs").rglob("*") if path.is_file()]) == len(distinct)
    inventory.evict(layout, inventory.named(layout, at.several.address))
    layout.empty_trash()
    assert read(second.path) == {"weights.safetensors": FILES[NAME], "adapter.bin": made(7, 1000)}
    with pytest.raises(NotCached):
        inventory.named(layout, at.several.address)
    assert at.fetch(replace(at.several, address=other.as_uri())).hit


def test_room_is_made_for_the_whole_set(place: Open, tmp_path: Path) -> None:
    """Before the first byte, by what is not here yet; a set that shares all its blobs needs none."""
    at = place("file", FILES, NAME)
    at.fetch(at.several)
    total = sum(map(len, FILES.values()))
    tight = RoomPolicy(capacity=Bytes(total + 3 * 4096 + 40_000))
    weights = WeightCache(at.cache, at.policy, tight, SystemClock())
    subset = replace(at.several, include=("model-*",))
    got = weights.fetch(subset, at.source(subset), Progress())
    got.use.end()
    assert got.transferred == 0
    assert len(inventory.cached(at.weights().layout)) == 2


@pytest.mark.parametrize("kind", LISTED)
def test_an_index_without_its_shards_is_refused(place: Open, kind: str) -> None:
    """Before anything is shown, naming what is missing."""
    index = json.dumps({"weight_map": {"a": NAME, "b": "model-00003.safetensors"}}).encode()
    at = place(kind, {**FILES, "model.safetensors.index.json": index}, NAME)
    with pytest.raises(Incomplete, match=r"model-00003\.safetensors"):
        at.fetch(at.several)
    assert at.shown() == []


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, place: Open) -> None:
    """An index that names what is not beside it: nothing is asked, nothing is written."""
    index = json.dumps({"weight_map": {"a": "../../secret", "b": "ok.bin"}}).encode()
    at = place("http", {"model.safetensors.index.json": index}, "model.safetensors.index.json")
    with pytest.raises(OddName):
        at.fetch(at.one)
    assert at.faulty is not None
    assert not any("secret" in path for path, _ in at.faulty.asked)
    assert at.shown() == []


@pytest.mark.parametrize("kind", LISTED)
def test_the_first_part_of_a_split_file_names_all(place: Open, kind: str) -> None:
    """An engine is given the first, and finds the others beside it."""
    parts = {f"llama-{number:05d}-of-00003.gguf": made(number, CHUNK + number) for number in (1, 2, 3)}
    at = place(kind, {**parts, "README.md": b"hello"}, "llama-00001-of-00003.gguf")
    got = at.fetch(at.one)
    assert got.path.name == "llama-00001-of-00003.gguf"
    assert read(got.path.parent) == parts
