"""What the weight cache needs from outside: sources of content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from coldstart.core.cache.content import Described, Span


class Source(Protocol):
    """One file at one address. Used by several threads."""

    def describe(self) -> Described:
        """Length, version and name. Retryable, SourceRefused or SourceBroken say why there are none."""

    def connect(self) -> Channel:
        """A way to read it, for one thread."""

    def shown(self) -> str:
        """The address without secrets, for people, events and manifests."""


class Channel(Protocol):
    """One thread's way to read a source; it may be used again after a failed read."""

    def read(self, span: Span, of: Described, into: memoryview) -> None:
        """Fill `into` with exactly this span of that version.

        Retryable: this try failed. VersionMoved: the content is another. RangesIgnored: read it as a whole instead.
        """

    def stream(self, of: Described, into: memoryview, take: Callable[[int], None]) -> None:
        """Read the whole in order; `take(length)` is called when `into` holds the next part of that length."""

    def close(self) -> None:
        """End it; also from another thread, to break off a read. Harmless twice."""
