"""A cache's folder with very many small weights, made without fetching, to measure what an eviction costs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from coldstart.cache import holding, publishing
from coldstart.cache.layout import Layout, snapshot_id
from coldstart.cache.manifests import boot
from coldstart.core.cache.content import Kept, Manifest, digest_of
from coldstart.core.cache.room import Heat
from events.units import Bytes, Instant, Seconds

SIZE = 4096
"""Bytes of each blob: one block of the disk. (Deleting what was evicted costs by size; this is not about that.)"""


def fill(root: Path, count: int) -> Layout:
    """`count` weights of one file each, published as fetched ones are, each asked for a little more than the last."""
    layout = Layout(root)
    layout.make()
    for number in range(count):
        _add(layout, number)
    return layout


def _add(layout: Layout, number: int) -> None:
    content = number.to_bytes(8, "big") * (SIZE // 8)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    blob = layout.blob(digest)
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    blob.chmod(0o444)
    kept = Kept("model", Bytes(SIZE), "1", digest, (digest,), blob.stat().st_mtime_ns)
    source = f"https://models.example/{number}"
    whole = digest_of((kept,), "model")
    manifest = Manifest(
        source=source, place="", version="1", snapshot=snapshot_id("model", whole), main="model", digest=whole,
        chunk_bytes=SIZE, files=(kept,), fetched_at=Instant(0.0), fetch_seconds=Seconds(4.0), boot=boot(), synced=False,
    )  # fmt: skip
    publishing.publish(layout, manifest, source)
    holding.write_heat(layout, manifest.snapshot, Heat(1.0 + number, Instant(0.0), 0.0))


def walked(root: Path) -> int:
    """The yardstick: look at each file once, as `du` does. How many there are."""
    there = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    for path in there:
        path.lstat()
    return len(there)
