"""Looking after the cache: reading blobs anew, and clearing what a crash, an eviction or time left behind."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from coldstart.cache import holding, inventory, publishing
from coldstart.cache.inventory import Cached
from coldstart.cache.layout import Layout, delete
from coldstart.cache.manifests import manifests
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import beyond, clock_after, give_up, tidy
from events.units import Bytes, Instant, Seconds

PARTIAL_KEPT = Seconds(7 * 86400.0)
"""A fetch that nobody has gone on with for so long is given up. A choice."""

QUARANTINE_KEPT = Seconds(7 * 86400.0)
"""What was wrong can be looked at for so long; until then it takes room. A choice."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What `collect` took away, and how many bytes less the cache takes."""

    evicted: tuple[str, ...]
    partials: int
    orphans: int
    bytes: Bytes


def wrong(layout: Layout, there: Iterable[Cached]) -> tuple[str, ...]:
    """Read these blobs anew, each once; the digests of those that are not what they should be. Needs no lock: one that
    is evicted meanwhile is none of them."""
    return tuple(blob for blob in dict.fromkeys(blob for one in there for blob in one.blobs) if _wrong(layout, blob))


def _wrong(layout: Layout, blob: str) -> bool:
    try:
        return publishing.digest_of(layout.blob(blob)) != blob
    except FileNotFoundError:
        return False


def verify(layout: Layout, there: Iterable[Cached]) -> tuple[str, ...]:
    """Read these blobs anew; those that are not what they should be go to quarantine, and only those: their digests."""
    found = wrong(layout, there)
    for blob in found:
        publishing.condemn(layout, blob)
    return found


def collect(layout: Layout, policy: RoomPolicy, now: Instant, running: AbstractSet[Path] = frozenset()) -> Cleared:
    """Partial files that nobody goes on with, what no manifest names, what was quarantined long ago, trash; then down
    to the low watermark, first without fetches that were given up (not `running`) and what was quarantined."""
    before = inventory.space(layout, policy).used
    partials = _old_partials(layout, now)
    orphans = _orphans(layout) + _old_quarantine(layout, now)
    layout.empty_trash()
    for left in give_up(beyond(inventory.space(layout, policy), policy), inventory.leftovers(layout, running)):
        place = layout.root / left.name
        partials, orphans = partials + (place.parent == layout.partial), orphans + (place.parent != layout.partial)
        delete(place)
    there = inventory.cached(layout)
    gone = tidy(inventory.space(layout, policy), inventory.entries(layout, there), policy)
    by_digest = inventory.by_digest(there)
    if gone:
        inventory.evict(layout, *(by_digest[entry.digest] for entry in gone))
        inventory.move_clock(layout, clock_after(inventory.clock_of(layout), gone, policy.sla))
    layout.empty_trash()
    freed = max(0, before - inventory.space(layout, policy).used)
    return Cleared(tuple(entry.digest for entry in gone), partials, orphans, Bytes(freed))


def _old_partials(layout: Layout, now: Instant) -> int:
    old = [path for path in layout.partial.iterdir() if now - _touched(path) > PARTIAL_KEPT]
    for path in old:
        delete(path)
    return len(old)


def _old_quarantine(layout: Layout, now: Instant) -> int:
    """By when they were put there: a rename changes that time, and not the one of their content."""
    old = [path for path in layout.quarantine.iterdir() if now - path.stat().st_ctime > QUARANTINE_KEPT]
    for path in old:
        delete(path)
    return len(old)


def _touched(folder: Path) -> float:
    return max((path.stat().st_mtime for path in folder.iterdir()), default=folder.stat().st_mtime)


def _orphans(layout: Layout) -> int:
    """Blobs and snapshots without a manifest, manifests without any blob, marks of snapshots that are gone."""
    known = list(manifests(layout))
    dead = {path for path, manifest in known if not any(layout.blob(kept.digest).exists() for kept in manifest.files)}
    for path in dead:
        path.unlink(missing_ok=True)
    alive = [manifest for path, manifest in known if path not in dead]
    snapshots = {manifest.snapshot for manifest in alive}
    blobs = {layout.blob(kept.digest) for manifest in alive for kept in manifest.files}
    lost = [path for path in layout.snapshots.iterdir() if path.name not in snapshots and _free(layout, path.name)]
    lost += [path for path in (layout.root / "blobs").glob("*/*/*") if path not in blobs]
    for path in lost:
        layout.discard(path)
    for folder in (layout.pins, layout.heat, layout.uses):
        for path in folder.iterdir():
            if path.name not in snapshots and not path.name.startswith(".") and _free(layout, path.name):
                path.unlink(missing_ok=True)
    return len(lost) + len(dead)


def _free(layout: Layout, snapshot: str) -> bool:
    return not holding.used(layout, snapshot)
