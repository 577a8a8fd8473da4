"""The budgets of one dispatched request: to its first byte, between bytes, in all. Their clocks start at dispatch."""

from __future__ import annotations

import math

from events.units import Instant
from runtime.core.policy import Timeouts


class RunClock:
    """When which budget of a request runs out. `stalled_at`: since when its client reads nothing; infinite: it does."""

    __slots__ = ("_timeouts", "dispatched_at", "first_byte_at", "last_byte_at", "stalled_at")

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self.dispatched_at = Instant(0.0)
        self.first_byte_at: Instant | None = None
        self.last_byte_at = Instant(0.0)
        self.stalled_at = math.inf

    def dispatch(self, now: Instant) -> float:
        """It goes to a replica (again). When the first budget runs out."""
        self.dispatched_at = now
        self.first_byte_at = None
        timeouts = self._timeouts
        return now + min(timeouts.first_byte, timeouts.total)

    def until_first_byte(self) -> tuple[float, str]:
        """(when, which budget) while no byte has come."""
        return self._or_total(self.dispatched_at + self._timeouts.first_byte, "first_byte_timeout")

    def until_next_byte(self, stall_timeout: float) -> tuple[float, str]:
        """(when, which budget) while bytes come: the engine's silence counts only while the client reads."""
        if self.stalled_at != math.inf:
            return self._or_total(self.stalled_at + stall_timeout, "client_stalled")
        return self._or_total(self.last_byte_at + self._timeouts.idle, "idle_timeout")

    def until_end(self) -> tuple[float, str]:
        """(when, which budget) of the whole."""
        return self.dispatched_at + self._timeouts.total, "total_timeout"

    def _or_total(self, due: float, code: str) -> tuple[float, str]:
        total = self.dispatched_at + self._timeouts.total
        return (total, "total_timeout") if total <= due else (due, code)
