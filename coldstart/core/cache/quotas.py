"""Quotas: how much of the cache the weights of some addresses may take, by bytes and by files. Pure.

A quota counts the blobs of all contents whose address it matches, each once. Who needs more than is left of it evicts
only what belongs to that quota alone; others' weights never go for it. Several quotas may match: each is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coldstart.core.cache.errors import OverQuota
from coldstart.core.cache.policy import Quota
from coldstart.core.cache.room import Entry, freeing
from events.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class Charge:
    """What a fetch will add. `blobs`: those that are here and become this address's too, with their bytes."""

    source: str
    bytes: Bytes
    files: int
    blobs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """What belongs to a quota now."""

    bytes: Bytes
    files: int


def matching(quotas: Iterable[Quota], source: str) -> tuple[str, ...]:
    """Names of the quotas that an address belongs to."""
    return tuple(quota.name for quota in quotas if quota.has(source))


def use_of(quota: Quota, entries: Iterable[Entry]) -> Use:
    """Of all contents that one of its addresses names."""
    blobs = _blobs(one for one in entries if any(quota.has(source) for source in one.sources))
    return Use(Bytes(sum(blobs.values())), len(blobs))


def make_way(
    quota: Quota, charge: Charge, promised: Sequence[Charge], entries: Iterable[Entry], sla: Seconds
) -> tuple[Entry, ...]:
    """Whom of this quota to evict so that `charge` fits beside what was `promised` to other fetches. OverQuota."""
    if not quota.has(charge.source):
        return ()
    own = [one for one in entries if any(quota.has(source) for source in one.sources)]
    own = [replace(one, held=one.held or not all(quota.has(source) for source in one.sources)) for one in own]
    there = _blobs(own)
    coming = [one for one in promised if quota.has(one.source)]
    more = {digest: size for digest, size in charge.blobs if digest not in there}
    size = charge.bytes + sum(more.values()) + sum(one.bytes for one in coming)
    files = charge.files + len(more) + sum(one.files for one in coming)
    kept = {digest for digest, _ in charge.blobs}
    free = [replace(one, held=one.held or any(digest in kept for digest, _ in one.parts)) for one in own]
    gone, missing = _free(free, sum(there.values()) + size, quota.bytes, sla)
    left = [one for one in free if one not in gone]
    counted = [replace(one, blobs=tuple((digest, 1) for digest, _ in one.parts)) for one in left]
    more_gone, too_many = _free(counted, len(_blobs(left)) + files, quota.files, sla)
    if missing or too_many:
        raise OverQuota(quota.name, quota.match, (Bytes(size), quota.bytes), (files, quota.files))
    digests = {one.digest for one in more_gone}
    return (*gone, *(one for one in left if one.digest in digests))


def _free(entries: Sequence[Entry], wanted: int, most: int | None, sla: Seconds) -> tuple[tuple[Entry, ...], bool]:
    """Whom to evict so that `wanted` is `most` at most, and whether that was not enough."""
    missing = 0 if most is None else math.ceil(wanted - most)
    if missing <= 0:
        return (), False
    chosen, freed = freeing(missing, entries, sla)
    return chosen, freed < missing


def _blobs(entries: Iterable[Entry]) -> Mapping[str, int]:
    return {digest: size for one in entries for digest, size in one.parts if size}
