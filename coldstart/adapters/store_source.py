"""Weights from an object store: ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``az://CONTAINER/KEY``, through obstore.

A key that ends with ``/``, or that is no object, is a prefix: all objects below it. Retries are ours: obstore's own are
turned off, so that one budget counts. What obstore says of a failure is not passed on, since it may hold signed
addresses; only its kind and HTTP status are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from coldstart.adapters.store_errors import telling
from coldstart.adapters.stores import opened
from coldstart.core.cache.content import Described, Listing, Span, alone, version_of
from coldstart.core.cache.errors import Interrupted, SourceRefused, UnsupportedSource, VersionMoved
from coldstart.core.cache.pace import Pulse
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import FILES_MOST, split_parts
from coldstart.core.cache.wanted import Access
from coldstart.ports import Channel
from events.clock import Clock
from events.units import Bytes

if TYPE_CHECKING:
    from obstore import ObjectMeta


class StoreSource:
    """An object, or all below a prefix."""

    def __init__(self, address: str, access: Access, policy: FetchPolicy, clock: Clock) -> None:
        parts = urlsplit(address)
        self.scheme, self.bucket = parts.scheme.lower(), parts.netloc
        self.key = unquote(parts.path.removeprefix("/"))
        if not self.bucket or "@" in self.bucket or parts.query or parts.fragment:
            raise UnsupportedSource(f"{self.scheme}:// names a bucket and a key, without user, query and fragment")
        self.policy = policy
        self.clock = clock
        self.store = opened(self.scheme, self.bucket, access, policy)
        self.prefix = ""
        """Names of files are relative to it."""

    def shown(self) -> str:
        """The address."""
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def fixed(self) -> str | None:
        """Objects may change."""
        return None

    def connect(self) -> Channel:
        """For one thread at a time."""
        return _StoreChannel(self)

    def describe(self) -> Listing:
        """Asks for the object; where there is none, for what is below the prefix."""
        if self.key and not self.key.endswith("/"):
            self.prefix = self.key.rpartition("/")[0]
            name = self.key.removeprefix(f"{self.prefix}/")
            first = self._head(name)
            if first is not None:
                return self._with_parts(first)
        self.prefix = self.key.rstrip("/")
        files = self._below()
        if not files:
            raise SourceRefused(self.shown(), "there is no such object, and none below it")
        return Listing(files, "", version_of(files))

    def _with_parts(self, first: Described) -> Listing:
        names = split_parts(first.name)
        if names == (first.name,):
            return alone(first)
        others = [self._head(name) for name in names[1:]]
        files = (first, *(file for file in others if file is not None))  # what is missing is told by `select`
        return Listing(files, first.name, version_of(files))

    def path(self, name: str) -> str:
        """The key of a file."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def _head(self, name: str) -> Described | None:
        import obstore  # noqa: PLC0415 - an extra; `opened` told that it is missing

        with telling(self.shown()):
            try:
                return self._described(obstore.head(self.store, self.path(name)), name)
            except FileNotFoundError:
                return None

    def _below(self) -> tuple[Described, ...]:
        import obstore  # noqa: PLC0415 - as above

        start = f"{self.prefix}/" if self.prefix else ""

        def found() -> Iterator[ObjectMeta]:
            for batch in obstore.list(self.store, self.prefix or None, chunk_size=1000):
                yield from (meta for meta in batch if not meta["path"].endswith("/"))

        with telling(self.shown()):
            metas = list(islice(found(), FILES_MOST + 1))
        return tuple(self._described(meta, meta["path"].removeprefix(start)) for meta in metas)

    @staticmethod
    def _described(meta: ObjectMeta, name: str) -> Described:
        return Described(name, Bytes(meta["size"]), version(meta), ranges=True)


def version(meta: ObjectMeta) -> str:
    """The ETag, without quotes, which some stores leave out of lists; else time and length."""
    tag = (meta["e_tag"] or "").strip('"')
    return tag or f"{meta['last_modified'].isoformat()}|{meta['size']}"


class _StoreChannel:
    """The library has connections of its own; a read that waits ends with its time, not with `close`."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source
        self._closed = threading.Event()

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """See the port."""
        import obstore  # noqa: PLC0415 - as above

        source = self._source
        tagged = "|" not in of.version
        with telling(source.shown()):
            answer = obstore.get(source.store, source.path(of.name), options={
                "range": (span.start, span.end), "if_match": f'"{of.version}"' if tagged else None,
            })  # fmt: skip
            meta = answer.meta
        if version(meta) != of.version or meta["size"] != of.bytes:
            raise VersionMoved
        if tuple(answer.range) != (span.start, span.end):
            raise Interrupted("it gave other bytes than it was asked for")
        with telling(source.shown()):
            self._fill(iter(answer.stream(min_chunk_size=source.policy.floor)), into)

    def _fill(self, pieces: Iterator[bytes], into: memoryview) -> None:
        pulse = Pulse(self._source.policy, self._source.clock.now())
        done = 0
        for piece in pieces:
            if self._closed.is_set():
                raise Interrupted("closed")
            if done + len(piece) > len(into):
                raise Interrupted("it gave more bytes than it was asked for")
            into[done : done + len(piece)] = piece
            done += len(piece)
            if pulse.stalled(len(piece), self._source.clock.now()):
                raise Interrupted("it gave next to nothing")
        if done != len(into):
            raise Interrupted(f"the answer ended {len(into) - done} bytes early")

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """See the port."""
        at = 0
        while at < of.bytes:
            part = min(len(into), of.bytes - at)
            self.read(Span(0, at, part), of, into[:part])
            take(part)
            at += part

    def close(self) -> None:
        """A read ends with its next piece."""
        self._closed.set()
