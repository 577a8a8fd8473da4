"""What the weight cache needs from outside: sources of content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from coldstart.core.cache.content import Described, Listing, Span


class Source(Protocol):
    """What is at one address: a file, or several that belong together. Used by several threads."""

    def describe(self) -> Listing:
        """The files that there are. Retryable, SourceRefused or SourceBroken say why there are none."""

    def fixed(self) -> str | None:
        """The version, where the address itself says it and it cannot change: then a hit asks nobody. Else None."""

    def connect(self) -> Channel:
        """A way to read it, for one thread at a time."""

    def shown(self) -> str:
        """The address without secrets, for people, events and manifests."""


class Channel(Protocol):
    """A way to read a source, for one thread at a time; it may be used again after a failed read."""

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """Fill `into` with exactly this span of that version of that file.

        Retryable: this try failed. VersionMoved: the content is another. RangesIgnored: read it as a whole instead.
        """

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """Read the whole in order; `take(length)` is called when `into` holds the next part of that length."""

    def close(self) -> None:
        """End it; also from another thread, to break off a read. Harmless twice."""
