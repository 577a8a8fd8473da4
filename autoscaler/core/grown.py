"""What a window tells beyond what was told before: one of the same interval replaces the earlier, and has grown."""

from __future__ import annotations

from typing import Final

from events.types.requests import RequestWindow

SOURCES_MOST: Final = 256
"""(Gateway, revision) pairs remembered; the one that was heard least lately makes room."""


class Grown:
    """Remembers the counts of each source's newest window."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[float, tuple[float, ...]]] = {}

    def since(self, source: str, window: RequestWindow, counts: tuple[float, ...]) -> tuple[float, ...]:
        """Of `counts`, which are of this window, what is new. Never negative."""
        key = (source, window.revision)
        was = self._seen.pop(key, None)
        if len(self._seen) >= SOURCES_MOST:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (window.started_at, counts)
        if was is None or was[0] != window.started_at:
            return counts
        return tuple(max(0.0, now - then) for now, then in zip(counts, was[1], strict=True))
