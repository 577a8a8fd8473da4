"""Which peer to ask for a blob: of those that have it, the nearest, then the least busy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node's agent that is said to have a blob."""

    name: str
    address: str
    """``http://HOST:PORT`` of its agent's port."""
    distance: int = 0
    """Steps away, such as 0 in the rack, 1 in the zone, 2 beyond: only their order counts."""
    streams: int | None = None
    """Ranges that it serves now; None: not known."""


def choose(digest: str, holders: Iterable[Peer], own: str, busy_from: int) -> tuple[Peer, ...]:
    """Whom to ask, in order: the nearest first, among them the least busy; those with `busy_from` streams or more not.

    Unknown is not idle: it comes after those that are known. Equals are in another order for each digest, so that the
    blobs of one model are not all asked of the same peer.
    """
    free = [peer for peer in holders if peer.name != own and (peer.streams is None or peer.streams < busy_from)]
    return tuple(sorted(free, key=lambda peer: (*_rank(peer), _spread(digest, peer.name))))


def _rank(peer: Peer) -> tuple[int, bool, int]:
    return peer.distance, peer.streams is None, peer.streams or 0


def _spread(digest: str, name: str) -> str:
    """Rendezvous hashing (Thaler and Ravishankar, 1998)."""
    return hashlib.sha256(f"{digest}\n{name}".encode()).hexdigest()
