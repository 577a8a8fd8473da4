"""Which files of a source are wanted, whether their names are fit for a disk, and in which order they come."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from coldstart.core.cache.content import Described, Listing, Span, version_of
from coldstart.core.cache.errors import Incomplete, NothingLeft, OddName, TooManyFiles

FILES_MOST = 10_000
"""In one set. A choice: the largest repositories of models have some hundreds."""
INDEX = ".safetensors.index.json"
INDEX_BYTES_MOST = 64 << 20
"""Of a safetensors index that is read: those of the largest models take a few MiB. A choice."""
_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
"""How llama.cpp names the parts of a split GGUF file (`llama_split_path`)."""


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern means this name: as in a shell, but ``*`` crosses ``/``; case counts.

    A pattern that ends with ``/`` means all below that folder. (The rules of Hugging Face's `allow_patterns`.)
    """
    return fnmatchcase(name, f"{pattern}*" if pattern.endswith("/") else pattern)


def select(listing: Listing, include: Sequence[str], exclude: Sequence[str], source: str) -> Listing:
    """The listing's files that are wanted: all that any of `include` means (empty: all), less what `exclude` means.

    Raises OddName, TooManyFiles, NothingLeft, or Incomplete where a split GGUF file lacks parts.
    """
    if len(listing.files) > FILES_MOST:
        raise TooManyFiles(source, len(listing.files), FILES_MOST)
    check_names((file.name for file in listing.files), source)
    left = tuple(
        file for file in listing.files
        if (not include or any(fits(pattern, file.name) for pattern in include))
        and not any(fits(pattern, file.name) for pattern in exclude)
    )  # fmt: skip
    if not left:
        raise NothingLeft(source, len(listing.files))
    _check_splits({file.name for file in left}, source)
    main = listing.main if any(file.name == listing.main for file in left) else ""
    same = listing.pinned or len(left) == len(listing.files)
    version = listing.version if same else version_of(left)
    return replace(listing, files=left, main=main, version=version)


def check_names(names: Iterable[str], source: str) -> None:
    """Each stays below the snapshot's folder and is the same on every disk; none is twice, or a folder as well."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in names:
        why = _odd(name)
        if why is None and name in seen:
            why = "it is there twice"
        if why is not None:
            raise OddName(source, name, why)
        seen.add(name)
        parts = name.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    for name in sorted(seen & folders):
        raise OddName(source, name, "it is a file and a folder")


def _odd(name: str) -> str | None:
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts):
        return "a part of it is empty, . or .."
    if "\\" in name or any(not character.isprintable() for character in name):
        return "it has a backslash or a character that cannot be printed"
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 1024:
        return "it is longer than 1,024 bytes, or a part of it longer than 255"
    return None


def split_parts(name: str) -> tuple[str, ...]:
    """All parts of the split GGUF file that this is the first part of; only itself where it is none."""
    found = _SPLIT.match(name)
    if found is None or int(found["number"]) != 1 or not 1 < int(found["count"]) <= FILES_MOST:
        return (name,)
    return tuple(
        f"{found['stem']}-{number:05d}-of-{found['count']}.gguf" for number in range(1, int(found["count"]) + 1)
    )


def _check_splits(names: set[str], source: str) -> None:
    for name in sorted(names):
        if found := _SPLIT.match(name):
            first = f"{found['stem']}-00001-of-{found['count']}.gguf"
            missing = [part for part in split_parts(first) if part not in names]
            if missing:
                raise Incomplete(source, name, missing[0], len(missing))


def shards_of(index: bytes) -> tuple[str, ...]:
    """The files that a safetensors index names, in order; none where it is no index."""
    try:
        weight_map = json.loads(index)["weight_map"]
        return tuple(sorted({str(name) for name in weight_map.values()}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def check_index(name: str, index: bytes, names: set[str], source: str) -> None:
    """Incomplete where some, but not all, of the files that a safetensors index names are there.

    None at all: they were left out on purpose, as in a repository with two formats.
    """
    folder = name.rpartition("/")[0]
    shards = [f"{folder}/{shard}" if folder else shard for shard in shards_of(index)]
    missing = [shard for shard in shards if shard not in names]
    if missing and len(missing) < len(shards):
        raise Incomplete(source, name, missing[0], len(missing))


def plan(files: Sequence[Described], chunk_bytes: int) -> tuple[Span, ...]:
    """All chunks of these files, in the order in which they are asked for.

    First small files (tokenizer, configuration, indices), then the first chunk of each large one, where the headers of
    safetensors and GGUF are, then the rest in the order of names, which is the order of shards.
    """
    order = sorted(range(len(files)), key=lambda at: files[at].name)
    small = [at for at in order if files[at].bytes <= chunk_bytes]
    large = [at for at in order if files[at].bytes > chunk_bytes]
    starts = [(at, 0) for at in small + large if files[at].bytes]
    starts += [(at, start) for at in large for start in range(chunk_bytes, files[at].bytes, chunk_bytes)]
    return tuple(
        Span(index, start, min(chunk_bytes, files[at].bytes - start), at) for index, (at, start) in enumerate(starts)
    )
