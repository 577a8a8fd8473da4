"""How patiently: back-off with full jitter, retries, stalls."""

from __future__ import annotations

from coldstart.core.cache.policy import FetchPolicy
from events.units import Instant, Seconds


class Patience:
    """The retries that a fetch has left, and how long to wait before each.

    A chunk that comes takes the row of failures back to zero, not the budget: a source that fails every other
    time ends.
    """

    __slots__ = ("_left", "_policy", "_row")

    def __init__(self, policy: FetchPolicy, chunks: int) -> None:
        self._policy = policy
        self._left = policy.retries + int(policy.retries_share * chunks)
        self._row = 0

    def came(self) -> None:
        """A chunk came whole."""
        self._row = 0

    def failed(self, retry_after: Seconds | None, draw: float) -> Seconds | None:
        """How long to wait before the next try; None: no more tries.

        Full jitter (Brooker, "Exponential Backoff and Jitter", 2015): `draw`, uniform in [0, 1), of the bound that
        doubles with each failure in a row. What the source asks for with Retry-After is never undercut.
        """
        if self._left <= 0 or (retry_after is not None and retry_after > self._policy.retry_after_most):
            return None
        self._left -= 1
        bound = min(self._policy.backoff_most, self._policy.backoff_first * 2.0 ** min(self._row, 30))
        self._row += 1
        return Seconds(max(retry_after or 0.0, draw * bound))


class Pulse:
    """Tells a stalled read: fewer than `floor` bytes in `stall` seconds. A trickle is a stall too."""

    __slots__ = ("_bytes", "_policy", "_since")

    def __init__(self, policy: FetchPolicy, now: Instant) -> None:
        self._policy = policy
        self._since = now
        self._bytes = 0

    def stalled(self, more: int, now: Instant) -> bool:
        """Count bytes that came, and say whether the read has stalled."""
        self._bytes += more
        if self._bytes >= self._policy.floor:
            self._since, self._bytes = now, 0
            return False
        return now - self._since > self._policy.stall
