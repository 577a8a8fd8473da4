"""What is on the node's disk of what is wanted: read in one go, off the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coldstart.cache import inventory, warming
from coldstart.cache.inventory import Cached
from coldstart.cache.layout import Layout
from coldstart.cache.manifests import read_manifest
from coldstart.cache.wanting import Wanted
from coldstart.core.budget import Tier
from coldstart.core.cache.content import Manifest
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.room import Space
from deploy.local.agent import IN_MEMORY
from events.units import Bytes


@dataclass(frozen=True, slots=True)
class Disk:
    """`here`: of the wanted addresses, those that are there as wanted. `gives_way`: bytes of partial files, and of
    blobs that were put aside."""

    contents: tuple[Cached, ...]
    space: Space
    here: Mapping[Wanted, Manifest]
    gives_way: Bytes = Bytes(0)

    def holder(self, digest: str) -> Cached | None:
        """The blob of a digest."""
        return next((one for one in self.contents if one.digest == digest), None)

    def free_of(self, wanted: Sequence[Wanted]) -> tuple[Cached, ...]:
        """Contents that none of these addresses stands for."""
        named = {manifest.digest for one, manifest in self.here.items() if one in wanted}
        return tuple(one for one in self.contents if one.digest not in named)


def look(layout: Layout, room: RoomPolicy, wanted: Sequence[Wanted]) -> Disk:
    """Read the folder. Blocking."""
    layout.make()
    contents = inventory.cached(layout)
    digests = {one.digest for one in contents if one.whole}
    here = {}
    for one in wanted:
        manifest = read_manifest(layout.manifest(one.identity))
        if manifest is not None and manifest.digest in digests and one.digest in (None, manifest.digest):
            here[one] = manifest
    left = Bytes(sum(one.bytes for one in inventory.leftovers(layout, frozenset())))
    return Disk(contents, inventory.space(layout, room), here, left)


def tier_of(layout: Layout, manifest: Manifest | None) -> Tier:
    """Where weights are now. Blocking."""
    if manifest is None:
        return Tier.REMOTE
    share = warming.resident(layout.snapshots / manifest.snapshot)
    return Tier.MEMORY if share is not None and share >= IN_MEMORY else Tier.DISK
