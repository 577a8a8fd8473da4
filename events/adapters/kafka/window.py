"""Which events were seen lately: a bounded memory of (source, id)."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")

Ident = tuple[str, str]
"""(source, id): the same pair again is the same event."""


class Window(Generic[V]):
    """The newest `bound` events, each with a value. Used by one thread."""

    __slots__ = ("_bound", "_known")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._known: dict[Ident, V] = {}

    def get(self, ident: Ident) -> V | None:
        """The value of a known event."""
        return self._known.get(ident)

    def put(self, ident: Ident, value: V) -> None:
        """Know an event; the one known longest is forgotten when there are too many."""
        self._known[ident] = value
        if len(self._known) > self._bound:
            del self._known[next(iter(self._known))]

    def forget(self, ident: Ident) -> None:
        """Know it no longer."""
        self._known.pop(ident, None)
