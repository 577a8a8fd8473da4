"""Which files are wanted, which names are refused, what belongs together, and in which order it comes."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.content import Described, Kept, Listing, digest_of, version_of
from coldstart.core.cache.errors import Incomplete, NothingLeft, OddName, TooManyFiles
from coldstart.core.cache.selection import (
    FILES_MOST,
    check_index,
    check_names,
    fits,
    plan,
    select,
    shards_of,
    split_parts,
)
from events.units import Bytes


def listing(*names: str, main: str = "", pinned: bool = False) -> Listing:
    """Files of ten bytes."""
    files = tuple(Described(name, Bytes(10), f"v-{name}", ranges=True) for name in names)
    return Listing(files, main, version_of(files), pinned)


@pytest.mark.parametrize(
    ("pattern", "name", "means"),
    [
        ("*.safetensors", "a.safetensors", True), ("*.safetensors", "deep/a.safetensors", True),
        ("*.safetensors", "A.SAFETENSORS", False), ("model-?.bin", "model-1.bin", True), ("onnx/", "onnx/a/b", True),
        ("onnx/", "my-onnx/a", False), ("config.json", "deep/config.json", False), ("[ab].txt", "b.txt", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str, means: bool) -> None:
    """As in a shell, but a star crosses folders; a folder means all below it; case counts."""
    assert fits(pattern, name) is means


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        ((), (), ["a.bin", "a.json", "old/a.bin"]), (("*.bin",), (), ["a.bin", "old/a.bin"]),
        ((), ("old/",), ["a.bin", "a.json"]), (("*.bin",), ("old/",), ["a.bin"]),
    ],
)  # fmt: skip
def test_include_then_exclude(include: tuple[str, ...], exclude: tuple[str, ...], left: list[str]) -> None:
    """Exclude wins."""
    got = select(listing("a.bin", "a.json", "old/a.bin"), include, exclude, "x")
    assert [file.name for file in got.files] == left


def test_a_part_of_a_set_has_a_version_of_its_own() -> None:
    """So that a change of what is left out is no new version; a commit stays what it is."""
    whole = listing("a", "b")
    assert select(whole, ("a",), (), "x").version == version_of(whole.files[:1])
    assert select(whole, (), (), "x").version == whole.version
    assert select(listing("a", "b", pinned=True), ("a",), (), "x").version == listing("a", "b").version


def test_nothing_left_is_told() -> None:
    """With how many there were."""
    with pytest.raises(NothingLeft, match="2 files"):
        select(listing("a", "b"), ("*.bin",), (), "x")


def test_a_set_has_a_bound() -> None:
    """One more is refused."""
    with pytest.raises(TooManyFiles):
        select(listing(*(f"f{number}" for number in range(FILES_MOST + 1))), (), (), "x")


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../b", "/etc/passwd", "a//b", "", ".", "a/.", "a\\b", "a\nb", "a\x00b", "a\u202eb", "x" * 256,
     "/".join(["deep" * 10] * 40), "\udcff"],
)  # fmt: skip
def test_odd_names_are_refused(name: str) -> None:
    """What could leave the folder, or is not the same on every disk, or hides what it is."""
    with pytest.raises(OddName):
        check_names(["good.bin", name], "x")


@pytest.mark.parametrize("names", [["a", "a"], ["a", "a/b"], ["a/b/c", "a/b"]])
def test_names_that_cannot_be_together(names: list[str]) -> None:
    """Twice, and a file that is a folder as well."""
    with pytest.raises(OddName):
        check_names(names, "x")


PARTS = ("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf")


def test_parts_of_a_split_file() -> None:
    """The first names all; any other file names itself."""
    assert split_parts(PARTS[0]) == PARTS
    for name in (PARTS[1], "m.gguf", "m-00001-of-00001.gguf", "m-00001-of-99999.gguf", "m-1-of-3.gguf"):
        assert split_parts(name) == (name,)


def test_a_split_file_without_a_part_is_refused() -> None:
    """Before the first byte, naming what is missing."""
    with pytest.raises(Incomplete, match=PARTS[2]):
        select(listing(*PARTS[:2]), (), (), "x")
    select(listing(*PARTS), (), (), "x")


INDEX = json.dumps({"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors", "c": "m-1.safetensors"}}).encode()


def test_shards_of_an_index() -> None:
    """Each once, in order; what is no index names none."""
    assert shards_of(INDEX) == ("m-1.safetensors", "m-2.safetensors")
    for other in (b"", b"[]", b"{}", b"\xff", b'{"weight_map": 7}', b"[" * 100_000):
        assert shards_of(other) == ()


def test_an_index_whose_shards_are_not_all_there() -> None:
    """Some, not all: refused. All, or none at all (left out on purpose): fine."""
    name = "d/model.safetensors.index.json"
    check_index(name, INDEX, {name, "d/m-1.safetensors", "d/m-2.safetensors"}, "x")
    check_index(name, INDEX, {name, "d/other.bin"}, "x")
    with pytest.raises(Incomplete, match=r"d/m-2\.safetensors"):
        check_index(name, INDEX, {name, "d/m-1.safetensors"}, "x")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 20))
def test_the_plan_covers_all_files_once(sizes: list[int], chunk: int) -> None:
    """Each byte of each file once; small files first, then the head of each large one."""
    files = [Described(f"f{at}", Bytes(size), "v", ranges=True) for at, size in enumerate(sizes)]
    made = plan(files, chunk)
    assert [span.index for span in made] == list(range(len(made)))
    for at, size in enumerate(sizes):
        own = sorted((span for span in made if span.file == at), key=lambda span: span.start)
        assert [span.start for span in own] == list(range(0, size, chunk))
        assert sum(span.length for span in own) == size
    small = sum(0 < size <= chunk for size in sizes)
    large = sum(size > chunk for size in sizes)
    assert all(sizes[span.file] <= chunk for span in made[:small])
    assert [span.start for span in made[small : small + large]] == [0] * large


def test_the_digest_of_a_set_is_that_of_sha256sum() -> None:
    """`HEX  NAME` lines in the order of names; a single file at its own address has its own."""
    one, two = (Kept(name, Bytes(1), "v", f"sha256:{name * 64}", (), 0) for name in "ab")
    lines = f"{'a' * 64}  a\n{'b' * 64}  b\n"
    assert digest_of([two, one], "") == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    assert digest_of([one], "a") == one.digest
    assert digest_of([one], "") != one.digest
