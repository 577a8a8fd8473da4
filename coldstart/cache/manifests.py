"""Manifests on disk: read with suspicion, written last."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from coldstart.cache.layout import Layout, write_soon, write_whole
from coldstart.core.cache.content import Kept, Manifest, check_digest
from coldstart.core.cache.errors import OddName
from coldstart.core.cache.selection import check_names
from events.units import Bytes, Instant, Seconds

MOST_REMEMBERED: Final = 16_384
"""Manifests that are parsed once as long as their files do not change: parsing is most of what looking through a large
cache costs. Chosen: as many as anybody's cache has, at some kilobytes each."""


def read_manifest(path: Path) -> Manifest | None:
    """None: there is none, or it cannot be understood; then the weights count as not there."""
    try:
        raw = orjson.loads(path.read_bytes())
        files = tuple(_kept(file) for file in raw["files"]) if "files" in raw else (_kept(raw),)
        manifest = Manifest(
            source=str(raw["source"]), place=str(raw.get("place", "")), version=str(raw["version"]),
            snapshot=str(raw["snapshot"]),
            main=str(raw["main"] if "files" in raw else raw["name"]), digest=check_digest(str(raw["digest"])),
            chunk_bytes=int(raw["chunk_bytes"]), files=files, fetched_at=Instant(float(raw["fetched_at"])),
            fetch_seconds=Seconds(float(raw["fetch_seconds"])), boot=str(raw["boot"]), synced=bool(raw["synced"]),
        )  # fmt: skip
        check_names((file.name for file in files), manifest.source)
    except (OSError, ValueError, KeyError, TypeError, OddName):
        return None
    return manifest


def _kept(raw: dict[str, object]) -> Kept:
    """A file; the same fields stood in the manifest itself when there was one file at most."""
    chunks, size, written = raw["chunks"], raw["bytes"], raw["written_ns"]
    if not isinstance(chunks, list) or not isinstance(size, int) or not isinstance(written, int):
        raise TypeError("a file of a manifest has chunks, bytes and written_ns")
    return Kept(
        name=str(raw["name"]), bytes=Bytes(size), version=str(raw["version"]), digest=check_digest(str(raw["digest"])),
        chunks=tuple(str(chunk) for chunk in chunks), written_ns=written,
    )  # fmt: skip


def write_manifest(path: Path, manifest: Manifest) -> None:
    """With it, the weights are there. One that says "synced" is synced itself; others are lost whole in a power cut."""
    write = write_whole if manifest.synced else write_soon
    write(path, orjson.dumps(dataclasses.asdict(manifest), option=orjson.OPT_INDENT_2))


def manifests(layout: Layout) -> Iterator[tuple[Path, Manifest]]:
    """All that can be understood. Files are read once: each change makes another file, by `write_manifest`."""
    with os.scandir(layout.manifests) as found:
        told = [(one.path, one.stat()) for one in found if one.name.endswith(".json") and not one.name.startswith(".")]
    for path, stat in sorted(told, key=lambda one: one[0]):
        manifest = _read_once(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if manifest is not None:
            yield Path(path), manifest


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def _read_once(path: str, _inode: int, _written_ns: int, _size: int) -> Manifest | None:
    return read_manifest(Path(path))


@functools.cache
def boot() -> str:
    """This boot of the machine; "" where the system does not tell: then nothing is verified anew after a reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
