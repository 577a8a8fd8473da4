"""Whether this process has run all along: one that stood still may have been taken for dead without knowing it."""

from __future__ import annotations

from events.units import Instant, Seconds

STALL = Seconds(1.5)
"""Whoever stood still for so long sells nothing until it has read back a beat that it sent afterwards, and with it all
that others wrote meanwhile. Others take it for dead `UNSEEN` (5 s) after its last beat: that was sent at most a second
before it stood still, and 2.5 s are left for the log to take it."""


class Wakefulness:
    """Sees gaps between the instants that it is told of."""

    __slots__ = ("_last", "_woke_at")

    def __init__(self) -> None:
        self._last: Instant | None = None
        self._woke_at: Instant | None = None

    def runs(self, now: Instant) -> bool:
        """This process runs now. False: it has stood still, and does not know yet what happened meanwhile."""
        last = self._last
        if last is not None and now - last >= STALL:
            self._woke_at = now
        self._last = now
        return self._woke_at is None

    def read_back(self, said_at: Instant) -> bool:
        """Our beat of that time has come back. True: only now all is known again."""
        if self._woke_at is None or said_at < self._woke_at:
            return False
        self._woke_at = None
        return True
