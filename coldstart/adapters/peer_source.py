"""Weights from peers first: what another node has by its digest is read there, the rest from where it comes from.

A peer is a shortcut and no truth: what it gives is verified by the digest like all else, what it cannot give is asked
of the origin, and after wrong content nothing more is asked of peers.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coldstart.adapters.http_source import HttpSource
from coldstart.core.cache.content import Described, Listing, Span
from coldstart.core.cache.errors import CacheError, RangesIgnored, Retryable, VersionMoved
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Channel, Source
from events.clock import Clock

Holders = Callable[[str], Iterable[str]]
"""Addresses (``http://HOST:PORT``) of the peers that have a digest, in the order in which to ask them."""


def _nobody(address: str) -> None:
    """Nobody wants to hear of a peer that was of no use."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Whom to ask, and how. `lost` hears the address of a peer that was of no use."""

    holders: Holders
    token: str
    tls: ssl.SSLContext | None = None
    lost: Callable[[str], None] = _nobody


class PeerSource:
    """An origin, with peers before it. For one fetch."""

    def __init__(self, origin: Source, peers: Peers, policy: FetchPolicy, clock: Clock) -> None:
        self.origin = origin
        self._peers = peers
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._used = False
        self._again = False
        self._links: dict[str, list[_Link]] = {}
        self.given = 0
        """Bytes that came from peers."""

    def shown(self) -> str:
        """The origin's address."""
        return self.origin.shown()

    def fixed(self) -> str | None:
        """As the origin."""
        return self.origin.fixed()

    def describe(self) -> Listing:
        """As the origin. A plan that is made again once it was read from is made because something was wrong: it is
        made without peers."""
        with self._lock:
            self._again = self._used
            self._links.clear()
        return self.origin.describe()

    def connect(self) -> Channel:
        """For one thread at a time."""
        with self._lock:
            self._used = True
        return _PeerChannel(self, self.origin.connect())

    def links(self, of: Described) -> tuple[_Link, ...]:
        """Peers that may still be asked for a file."""
        digest = of.digest
        if digest is None:
            return ()
        with self._lock:
            if self._again:
                return ()
            if digest not in self._links:
                self._links[digest] = [self._link(address, of, digest) for address in self._peers.holders(digest)]
            return tuple(self._links[digest])

    def _link(self, address: str, of: Described, digest: str) -> _Link:
        url = f"{address}/blobs/{digest.replace(':', '/')}"
        headers = {"Authorization": f"Bearer {self._peers.token}"}
        return _Link(address, HttpSource(url, headers, self._policy, self._clock, self._peers.tls), of)

    def drop(self, of: Described, link: _Link) -> None:
        """This peer is not asked for this file again."""
        with self._lock:
            links = self._links.get(of.digest or "", [])
            there = link in links
            if there:
                links.remove(link)
        if there:
            self._peers.lost(link.address)

    def came(self, count: int) -> None:
        """Bytes from a peer."""
        with self._lock:
            self.given += count


class _Link:
    """A file at a peer, asked once what it is."""

    def __init__(self, address: str, source: HttpSource, of: Described) -> None:
        self.address = address
        self.source = source
        self._bytes = of.bytes
        self._lock = threading.Lock()
        self._described: Described | None = None

    def described(self) -> Described:
        """What the peer has. Raises as a source does; VersionMoved where it cannot be the same."""
        with self._lock:
            if self._described is None:
                (found,) = self.source.describe().files
                if found.bytes != self._bytes or not found.ranges:
                    raise VersionMoved
                self._described = found
            return self._described


class _PeerChannel:
    def __init__(self, source: PeerSource, origin: Channel) -> None:
        self._source = source
        self._origin = origin
        self._channels: dict[_Link, Channel] = {}
        self._closed = threading.Event()

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """See the port."""
        for link in self._source.links(of):
            if self._closed.is_set():
                break
            try:
                self._at(link).read(span, link.described(), into)
            except (Retryable, VersionMoved, RangesIgnored, CacheError):  # whatever it is, the origin is there
                self._source.drop(of, link)
                continue
            self._source.came(span.length)
            return
        self._origin.read(span, of, into)

    def _at(self, link: _Link) -> Channel:
        if link not in self._channels:
            self._channels[link] = link.source.connect()
        return self._channels[link]

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """From the origin: a stream cannot be gone on with elsewhere."""
        self._origin.stream(of, into, take)

    def close(self) -> None:
        """See the port."""
        self._closed.set()
        for channel in (self._origin, *list(self._channels.values())):
            channel.close()
