"""What is in the cache, read from the disk: entries, sizes, room; and taking something out."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from coldstart.cache import holding
from coldstart.cache.layout import Layout, allocated, write_whole
from coldstart.cache.manifests import manifests, read_manifest
from coldstart.core.cache.content import Manifest
from coldstart.core.cache.errors import InUse, NotCached, Pinned
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Entry, Leftover, Space, capacity
from events.units import Bytes


@dataclass(frozen=True, slots=True)
class Cached:
    """Content with the manifests that name it: a blob, or the blobs of a set of files."""

    digest: str
    bytes: Bytes
    manifests: tuple[Manifest, ...]
    pinned: bool
    in_use: bool
    whole: bool
    """All blobs are there; else some are in quarantine, and the next fetch has them anew."""

    @property
    def snapshots(self) -> tuple[str, ...]:
        """The snapshots that link to it."""
        return tuple(sorted({manifest.snapshot for manifest in self.manifests}))

    @property
    def blobs(self) -> tuple[str, ...]:
        """Digests of its blobs, each once."""
        return tuple(sorted({kept.digest for kept in self.manifests[0].files}))


def cached(layout: Layout) -> tuple[Cached, ...]:
    """All content that a manifest names and of which a blob at least is there; by digest."""
    grouped: dict[str, list[Manifest]] = {}
    for _, manifest in manifests(layout):
        grouped.setdefault(manifest.digest, []).append(manifest)
    found = (_cached(layout, digest, grouped[digest]) for digest in sorted(grouped))
    return tuple(one for one in found if one is not None)


def _cached(layout: Layout, digest: str, named: list[Manifest]) -> Cached | None:
    there = [layout.blob(blob).exists() for blob in {kept.digest for kept in named[0].files}]
    if not any(there):
        return None
    snapshots = {manifest.snapshot for manifest in named}
    return Cached(
        digest, named[0].bytes, tuple(named),
        pinned=any(holding.pinned(layout, snapshot) for snapshot in snapshots),
        in_use=any(holding.used(layout, snapshot) for snapshot in snapshots),
        whole=all(there),
    )  # fmt: skip


def named(layout: Layout, name: str) -> Cached:
    """By address (also without its secrets), by digest, or by its beginning (eight digits at least).

    NotCached: there is none, or an address stands for several, which differ in what was included.
    """
    manifest = read_manifest(layout.manifest(name))
    digits = name.removeprefix("sha256:")
    there = cached(layout)
    for one in there:
        if manifest is not None and manifest.digest == one.digest:
            return one
        if len(digits) >= 8 and one.digest.removeprefix("sha256:").startswith(digits):
            return one
    shown = [one for one in there if any(manifest.source == name for manifest in one.manifests)]
    if len(shown) == 1:
        return shown[0]
    raise NotCached(name, len(shown))


def entries(layout: Layout, there: Iterable[Cached]) -> tuple[Entry, ...]:
    """What could be evicted."""
    return tuple(_entry(layout, one) for one in there)


def _entry(layout: Layout, one: Cached) -> Entry:
    blobs = tuple((blob, allocated(layout.blob(blob))) for blob in one.blobs)
    heat = max((holding.read_heat(layout, snapshot) for snapshot in one.snapshots), key=lambda heat: heat.rate)
    seconds = max(manifest.fetch_seconds for manifest in one.manifests)
    size = Bytes(sum(taken for _, taken in blobs))
    sources = tuple(sorted({manifest.source for manifest in one.manifests}))
    return Entry(one.digest, size, seconds, heat, held=one.pinned or one.in_use, blobs=blobs, sources=sources)


def leftovers(layout: Layout, running: AbstractSet[Path]) -> tuple[Leftover, ...]:
    """What could be given up: blobs that were put aside, and partial files but those of fetches that run."""
    found = []
    for place in (*layout.partial.iterdir(), *layout.quarantine.iterdir()):
        if place in running:
            continue
        with contextlib.suppress(FileNotFoundError):
            own = [*place.iterdir()] if place.is_dir() else [place]
            told = [path.stat() for path in own]
            size = sum(one.st_blocks * 512 for one in told)
            # A rename changes the one time, and not the other: a blob is as old as what was found of it.
            touched = max((max(one.st_mtime, one.st_ctime) for one in told), default=0.0)
            if size:
                found.append(Leftover(str(place.relative_to(layout.root)), Bytes(size), touched))
    return tuple(found)


def space(layout: Layout, policy: RoomPolicy) -> Space:
    """What the cache may hold and what it holds now: blobs, partial files, quarantine and trash, by what they take."""
    seen: set[int] = set()
    used = sum(_taken(str(layout.root / folder), seen) for folder in ("blobs", "partial", "quarantine", "trash"))
    disk = os.statvfs(layout.root)
    total, free = Bytes(disk.f_blocks * disk.f_frsize), Bytes(disk.f_bavail * disk.f_frsize)
    return Space(capacity(policy, total, free, Bytes(used)), Bytes(used))


def _taken(folder: str, seen: set[int]) -> int:
    """Bytes on the disk of the files below a folder, each inode once. What vanishes meanwhile takes nothing."""
    taken, folders = 0, [folder]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as found:
            for one in found:
                if one.is_dir(follow_symlinks=False):
                    folders.append(one.path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    told = one.stat(follow_symlinks=False)
                    if told.st_ino not in seen and one.is_file():
                        seen.add(told.st_ino)
                        taken += told.st_blocks * 512
    return taken


def evict(layout: Layout, *chosen: Cached) -> None:
    """Out of the cache, manifests first, so that no crash leaves a manifest without its blobs. InUse or Pinned.

    Blobs that another manifest names stay. All manifests are read once, however many are evicted.
    """
    for one in chosen:
        if one.pinned:
            raise Pinned(one.digest)
    own, others = _of_snapshots(layout, {snapshot for one in chosen for snapshot in one.snapshots})
    holders = others + Counter(blob for one in chosen for blob in one.blobs)
    for one in chosen:
        for snapshot in one.snapshots:
            _evict_snapshot(layout, snapshot, own[snapshot], one.digest)
        holders.subtract(one.blobs)
        for blob in one.blobs:
            if holders[blob] <= 0:
                layout.discard(layout.blob(blob))


def _evict_snapshot(layout: Layout, snapshot: str, named_by: list[Path], digest: str) -> None:
    with holding.unused(layout, snapshot) as free:
        if not free:
            raise InUse(digest)
        for path in named_by:
            path.unlink(missing_ok=True)
        layout.discard(layout.snapshots / snapshot)
        for folder in (layout.heat, layout.pins):
            (folder / snapshot).unlink(missing_ok=True)


def _of_snapshots(layout: Layout, snapshots: set[str]) -> tuple[dict[str, list[Path]], Counter[str]]:
    """The manifests of these snapshots, and the blobs that others name."""
    own: dict[str, list[Path]] = {snapshot: [] for snapshot in snapshots}
    others: Counter[str] = Counter()
    for path, manifest in manifests(layout):
        if manifest.snapshot in snapshots:
            own[manifest.snapshot].append(path)
        else:
            others.update(kept.digest for kept in manifest.files)
    return own, others


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
