"""Requests that foreign gateways report one by one: each is in flight from its arrival to its finish."""

from __future__ import annotations

from events.units import Instant, Seconds

OPEN_MOST = 1000
"""Requests kept by name; more are only counted."""

OPEN_FOR = Seconds(600.0)
"""A request that is never finished counts for so long: the default total budget of a request."""


class Foreign:
    """Folds `request.arrived` and `request.finished`. Not idempotent beyond what is kept by name: it is news."""

    __slots__ = ("_nameless", "_nameless_until", "_open")

    def __init__(self) -> None:
        self._open: dict[str, Instant] = {}
        self._nameless = 0
        self._nameless_until = Instant(0.0)

    def __len__(self) -> int:
        return len(self._open) + self._nameless

    def arrive(self, request: str, at: Instant) -> bool:
        """A request is in flight. False: it was already."""
        if request in self._open:
            return False
        if len(self._open) < OPEN_MOST:
            self._open[request] = at
        else:
            self._nameless += 1
            self._nameless_until = Instant(at + OPEN_FOR)
        return True

    def finish(self, request: str) -> bool:
        """It is done. False: it was not known."""
        if self._open.pop(request, None) is not None:
            return True
        if self._nameless:
            self._nameless -= 1
            return True
        return False

    def expire(self, now: Instant) -> None:
        """Forget what nobody finished in time."""
        for request, at in list(self._open.items()):
            if now - at < OPEN_FOR:
                break
            del self._open[request]
        if self._nameless and now >= self._nameless_until:
            self._nameless = 0
