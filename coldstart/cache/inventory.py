"""What is in the cache, read from the disk: entries, sizes, room; and taking something out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coldstart.cache import holding
from coldstart.cache.layout import Layout, allocated, write_whole
from coldstart.cache.manifests import manifests
from coldstart.core.cache.content import Manifest
from coldstart.core.cache.errors import InUse, NotCached, Pinned
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Entry, Space, capacity
from events.units import Bytes


@dataclass(frozen=True, slots=True)
class Cached:
    """A blob with the manifests that name it."""

    digest: str
    bytes: Bytes
    manifests: tuple[Manifest, ...]
    pinned: bool
    in_use: bool

    @property
    def snapshots(self) -> tuple[str, ...]:
        """The snapshots that link to it."""
        return tuple(sorted({manifest.snapshot for manifest in self.manifests}))


def cached(layout: Layout) -> tuple[Cached, ...]:
    """Every blob that a manifest names and that is there; by digest."""
    grouped: dict[str, list[Manifest]] = {}
    for _, manifest in manifests(layout):
        grouped.setdefault(manifest.digest, []).append(manifest)
    return tuple(_cached(layout, digest, grouped[digest]) for digest in sorted(grouped) if layout.blob(digest).exists())


def _cached(layout: Layout, digest: str, named: list[Manifest]) -> Cached:
    snapshots = {manifest.snapshot for manifest in named}
    return Cached(
        digest, named[0].bytes, tuple(named),
        pinned=any(holding.pinned(layout, snapshot) for snapshot in snapshots),
        in_use=any(holding.used(layout, snapshot) for snapshot in snapshots),
    )  # fmt: skip


def named(layout: Layout, name: str, address: Path | None = None) -> Cached:
    """By address, by digest, or by the beginning of a digest (eight digits at least); NotCached."""
    manifest_path = layout.manifest(name) if address is None else address
    by_address = dict(manifests(layout)).get(manifest_path)
    digits = name.removeprefix("sha256:")
    for one in cached(layout):
        if by_address is not None and by_address.digest == one.digest:
            return one
        if len(digits) >= 8 and one.digest.removeprefix("sha256:").startswith(digits):
            return one
    raise NotCached(name)


def entries(layout: Layout, there: Iterable[Cached]) -> tuple[Entry, ...]:
    """What could be evicted."""
    return tuple(
        Entry(
            one.digest, Bytes(allocated(layout.blob(one.digest))), max(m.fetch_seconds for m in one.manifests),
            max((holding.read_heat(layout, snapshot) for snapshot in one.snapshots), key=lambda heat: heat.rate),
            held=one.pinned or one.in_use,
        )
        for one in there
    )  # fmt: skip


def space(layout: Layout, policy: RoomPolicy) -> Space:
    """What the cache may hold and what it holds now: blobs, partial files, quarantine and trash, by what they take."""
    seen: set[int] = set()
    used = 0
    for folder in ("blobs", "partial", "quarantine", "trash"):
        for path in (layout.root / folder).rglob("*"):
            told = path.lstat()
            if told.st_ino not in seen and path.is_file():
                seen.add(told.st_ino)
                used += told.st_blocks * 512
    disk = os.statvfs(layout.root)
    total, free = Bytes(disk.f_blocks * disk.f_frsize), Bytes(disk.f_bavail * disk.f_frsize)
    return Space(capacity(policy, total, free, Bytes(used)), Bytes(used))


def evict(layout: Layout, one: Cached) -> None:
    """Out of the cache, manifests first, so that no crash leaves a manifest without its blob. InUse or Pinned."""
    if one.pinned:
        raise Pinned(one.digest)
    for snapshot in one.snapshots:
        with holding.unused(layout, snapshot) as free:
            if not free:
                raise InUse(one.digest)
            for path, manifest in manifests(layout):
                if manifest.snapshot == snapshot:
                    path.unlink(missing_ok=True)
            layout.discard(layout.snapshots / snapshot)
            for folder in (layout.heat, layout.pins):
                (folder / snapshot).unlink(missing_ok=True)
    layout.discard(layout.blob(one.digest))


def clock_of(layout: Layout) -> float:
    """The eviction clock; 0 before the first eviction."""
    try:
        return float((layout.root / "clock").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def move_clock(layout: Layout, clock: float) -> None:
    """The eviction clock, after evictions."""
    write_whole(layout.root / "clock", repr(clock).encode())


def by_digest(there: Iterable[Cached]) -> Mapping[str, Cached]:
    """For looking up."""
    return {one.digest: one for one in there}
