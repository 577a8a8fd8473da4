"""Requests that foreign gateways report one by one: each is in flight from its arrival to its finish.

Either may be told twice, and the finish may come first: a producer whose partitioner differs sends one of the two to a
wrong partition, from where it is brought over later. Such a request is over when its arrival comes.
"""

from __future__ import annotations

from events.units import Instant, Seconds

OPEN_MOST = 1000
"""Requests kept by name; more are only counted."""

OPEN_FOR = Seconds(600.0)
"""A request that is never finished counts for so long: the default total budget of a request."""

EARLY_FOR = Seconds(60.0)
"""A finish that came first is remembered for so long: its arrival is on its way, or came before we followed."""


class Foreign:
    """Folds `request.arrived` and `request.finished`. Not idempotent beyond what is kept by name: it is news."""

    __slots__ = ("_early", "_nameless", "_nameless_until", "_open")

    def __init__(self) -> None:
        self._open: dict[str, Instant] = {}
        self._early: dict[str, Instant] = {}
        self._nameless = 0
        self._nameless_until = Instant(0.0)

    def __len__(self) -> int:
        return len(self._open) + self._nameless

    def arrive(self, request: str, at: Instant) -> bool:
        """A request is in flight. False: it was already, or is over."""
        if request in self._open or self._early.pop(request, None) is not None:
            return False
        if len(self._open) < OPEN_MOST:
            self._open[request] = at
        else:
            self._nameless += 1
            self._nameless_until = Instant(at + OPEN_FOR)
        return True

    def finish(self, request: str, at: Instant) -> bool:
        """It is done. False: it was not known to be in flight."""
        if self._open.pop(request, None) is not None:
            return True
        if self._nameless:
            self._nameless -= 1
            return True
        if len(self._early) >= OPEN_MOST:
            del self._early[next(iter(self._early))]
        self._early[request] = at
        return False

    @property
    def waits(self) -> bool:
        """Whether an arrival is waited for whose finish came first."""
        return bool(self._early)

    def expire(self, now: Instant) -> None:
        """Forget what nobody finished in time."""
        for request, at in list(self._open.items()):
            if now - at < OPEN_FOR:
                break
            del self._open[request]
        while self._early and now - self._early[first := next(iter(self._early))] >= EARLY_FOR:
            del self._early[first]
        if self._nameless and now >= self._nameless_until:
            self._nameless = 0
