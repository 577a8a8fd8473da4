"""Manifests on disk: read with suspicion, written last."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import orjson

from coldstart.cache.layout import Layout, write_soon, write_whole
from coldstart.core.cache.content import Manifest, check_digest
from events.units import Bytes, Instant, Seconds


def read_manifest(path: Path) -> Manifest | None:
    """None: there is none, or it cannot be understood; then the weights count as not there."""
    try:
        raw = orjson.loads(path.read_bytes())
        manifest = Manifest(
            source=str(raw["source"]), version=str(raw["version"]), snapshot=str(raw["snapshot"]),
            name=str(raw["name"]), bytes=Bytes(int(raw["bytes"])), digest=check_digest(str(raw["digest"])),
            chunk_bytes=int(raw["chunk_bytes"]), chunks=tuple(str(chunk) for chunk in raw["chunks"]),
            fetched_at=Instant(float(raw["fetched_at"])), fetch_seconds=Seconds(float(raw["fetch_seconds"])),
            written_ns=int(raw["written_ns"]), boot=str(raw["boot"]), synced=bool(raw["synced"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """With it, the weights are there. One that says "synced" is synced itself; others are lost whole in a power cut."""
    write = write_whole if manifest.synced else write_soon
    write(path, orjson.dumps(dataclasses.asdict(manifest), option=orjson.OPT_INDENT_2))


def manifests(layout: Layout) -> Iterator[tuple[Path, Manifest]]:
    """All that can be understood."""
    for path in sorted(layout.manifests.glob("*.json")):
        manifest = read_manifest(path)
        if manifest is not None:
            yield path, manifest


@functools.cache
def boot() -> str:
    """This boot of the machine; "" where the system does not tell: then nothing is verified anew after a reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
