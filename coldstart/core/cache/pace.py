"""How fast and how patiently: as many connections as bring more, back-off with full jitter, retries, stalls."""

from __future__ import annotations

from statistics import median

from coldstart.core.cache.policy import FetchPolicy
from events.units import Instant, Seconds

WORTH = 1.5
"""Twice the connections must bring so many times the bytes, or half of them are given back. A choice: twice brings
twice where each is capped, and nothing where the link or the processor is full."""
REST = 16
"""Rounds after which it is tried again whether more bring more. A choice."""


class Connections:
    """How many connections a fetch may use: twice as many as long as that brings more, half at the first trouble.

    A round is twice as many chunks as there are connections; the first half of it began before. With capped connections
    (object stores) this reaches 16 within 28 chunks; from a source as fast as this machine it stays at few, which take
    half the CPU of many (measured). Halving is the decrease of AIMD (Chiu and Jain, 1989), at most once a second.
    """

    __slots__ = ("_before", "_cut_at", "_policy", "_rest", "_speeds", "allowed")

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        self._speeds: list[float] = []
        self._before: tuple[int, float] | None = None
        self._rest = 0
        self._cut_at: Instant | None = None
        self.allowed = policy.connections_first

    def came(self, speed: float) -> None:
        """A chunk came whole, in bytes a second, and whoever needs it had nothing else to do: more may be of use."""
        self._speeds.append(speed)
        if len(self._speeds) < 2 * self.allowed:
            return
        total = self.allowed * median(self._speeds[self.allowed :])
        self._speeds.clear()
        if self._before is not None and total < WORTH * self._before[1]:
            self.allowed, self._before, self._rest = self._before[0], None, REST
        elif self._rest:
            self._rest -= 1
        elif self.allowed < self._policy.connections_most:
            self._before = self.allowed, total
            self.allowed = min(2 * self.allowed, self._policy.connections_most)

    def refused(self, now: Instant) -> None:
        """The source asked for patience, or a connection broke."""
        if self._cut_at is None or now - self._cut_at >= 1.0:
            self._cut_at = now
            self._speeds.clear()
            self._before, self._rest = None, REST
            self.allowed = max(1, self.allowed // 2)


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
