"""What the agents of other nodes have told: who has which weights, and who fetches which. Pure: time is an argument.

Two nodes that begin to fetch the same at once agree without asking each other: whoever said so earlier, by the times
in their words, goes first, and the other waits as long as that one gets on. Times of two clocks may be apart; then the
wrong one may go first, but never both wait: they compare the same two numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from coldstart.core.cache.peers import Peer, choose
from events.types.caches import CacheObserved
from events.units import Instant, Seconds

STALL: Final = Seconds(10.0)
"""A fetch of which nothing new was heard for so long is waited for no longer: it is told of every second. Chosen."""
UNTOLD: Final = Seconds(3.0)
"""A fetch that its node's state does not name so long after its start has ended without our having heard. Chosen."""
AVOIDED: Final = Seconds(30.0)
"""A peer that was of no use is not asked for so long. Chosen."""
SILENT: Final = Seconds(180.0)
"""An agent says its state again every minute; after three without a word it is taken for gone."""
MOST_NODES: Final = 4096
MOST_FETCHES: Final = 256
"""Of one node; the rest is not waited for."""
BUSY: Final = 64
"""Streams from which on a peer is not asked (`peer_server.STREAMS_MOST`)."""


NEVER: Final = Instant(0.0)


@dataclass(slots=True)
class _Fetch:
    began: Instant
    moved: Instant
    done: int = 0


@dataclass(slots=True)
class _Node:
    address: str = ""
    digests: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    fetching: dict[str, _Fetch] = field(default_factory=dict)
    avoided_until: Instant = NEVER
    heard: Instant = NEVER


@dataclass(frozen=True, slots=True)
class Ahead:
    """Another node that fetches the same and goes first."""

    node: str
    done: int


class Others:
    """A fold of what agents tell; `own` is this node's name, whose own words count as well."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._nodes: dict[str, _Node] = {}

    def started(self, node: str, source: str, at: Instant, now: Instant) -> None:
        """A node begins to fetch; `at` is the time in its word."""
        fetching = self._node(node).fetching
        if source in fetching or len(fetching) < MOST_FETCHES:
            fetching[source] = _Fetch(at, now)

    def ended(self, node: str, source: str, digest: str | None) -> None:
        """It has them (`digest`), or it does not fetch them any more."""
        known = self._node(node)
        known.fetching.pop(source, None)
        if digest is not None:
            known.digests |= {digest}
            known.sources |= {source}

    def told(self, seen: CacheObserved, now: Instant) -> None:
        """A node's state, whole."""
        node = self._node(seen.node)
        node.address, node.heard = seen.peer, now
        node.digests = frozenset(one.digest for one in seen.contents)
        node.sources = frozenset(one.source for one in seen.contents)
        told = {one.source: one.done for one in seen.fetching[:MOST_FETCHES]}
        for source, done in told.items():
            known = node.fetching.setdefault(source, _Fetch(NEVER, now))  # it began before we listened
            if done != known.done:
                known.done, known.moved = done, now
        for source in [one for one, fetch in node.fetching.items() if one not in told and now - fetch.moved > UNTOLD]:
            del node.fetching[source]

    def _node(self, name: str) -> _Node:
        if name not in self._nodes and len(self._nodes) >= MOST_NODES:
            self._nodes.pop(next(iter(self._nodes)))
        return self._nodes.setdefault(name, _Node())

    def lost(self, address: str, now: Instant) -> None:
        """A peer was of no use."""
        for node in self._nodes.values():
            if node.address == address:
                node.avoided_until = Instant(now + AVOIDED)

    def alone(self, now: Instant) -> bool:
        """Whether no other node has said of late where its agent is."""
        others = (node for name, node in self._nodes.items() if name != self._own)
        return not any(node.address and now - node.heard < SILENT for node in others)

    def heard_ourselves(self, source: str) -> bool:
        """Whether our own word on this fetch has come back: what others said before it is known, too."""
        return source in self._node(self._own).fetching

    def holders(self, source: str, digest: str, now: Instant) -> tuple[str, ...]:
        """Addresses of the agents that may have a file of this source, or of this digest, in the order to ask them."""
        peers = [
            Peer(name, node.address)
            for name, node in self._nodes.items()
            if node.address
            and now >= node.avoided_until
            and now - node.heard < SILENT
            and (digest in node.digests or source in node.sources)
        ]
        return tuple(peer.address for peer in choose(digest, peers, self._own, BUSY))

    def ahead(self, source: str, now: Instant, ignored: Iterable[str] = ()) -> Ahead | None:
        """Who of the others fetches this, goes first, and gets on; None: it is for us to fetch."""
        ours = self._node(self._own).fetching.get(source)
        if ours is None:
            return None
        found = [
            (node.fetching[source].began, name)
            for name, node in self._nodes.items()
            if name != self._own and name not in ignored and node.address and source in node.fetching
            and now - node.fetching[source].moved < STALL
        ]  # fmt: skip
        first = min(found, default=None)
        if first is None or first > (ours.began, self._own):
            return None
        return Ahead(first[1], self._nodes[first[1]].fetching[source].done)
