"""How a fetch gets on: bytes, rate, and what is left. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from events.units import Bytes, Instant, Seconds

WINDOW = Seconds(5.0)
"""The rate is that of the last so many seconds: long enough for a chunk of 8 MiB at 20 Mbit/s, short enough that a
change of the network shows while people still wait. A choice."""

_GRAIN = 0.1


@dataclass(frozen=True, slots=True)
class Transferred:
    """What of a fetch is verified. `rate`: bytes a second, None while it cannot be told; `at`: when this was so."""

    total: Bytes
    done: Bytes
    rate: float | None
    at: Instant

    def rest(self) -> Seconds | None:
        """Seconds from `at` until the last byte, at the present rate; None: nobody can say."""
        if self.done >= self.total and self.total:
            return Seconds(0.0)
        return Seconds((self.total - self.done) / self.rate) if self.rate else None


class Transfer:
    """Follows one fetch. Not thread-safe: its user holds a lock, or is one thread."""

    __slots__ = ("_done", "_seen", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._done = 0
        self._seen: deque[tuple[float, int]] = deque()

    def begins(self, total: int) -> None:
        """A fetch of so many bytes begins, or begins anew."""
        self._total, self._done = total, 0
        self._seen.clear()

    def verified(self, more: int, now: Instant) -> None:
        """So many more bytes are verified.

        What comes first is the base of the rate and not part of it: chunks kept from an earlier try come all at once.
        """
        self._done += more
        if self._seen and now - self._seen[-1][0] < _GRAIN:
            if len(self._seen) == 1:
                self._seen[-1] = (self._seen[-1][0], self._done)
            return
        self._seen.append((now, self._done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()

    def seen(self, now: Instant) -> Transferred:
        """As it stands."""
        rate = None
        if self._seen and now - self._seen[0][0] >= _GRAIN and self._done > self._seen[0][1]:
            rate = (self._done - self._seen[0][1]) / (now - self._seen[0][0])
        return Transferred(Bytes(self._total), Bytes(self._done), rate, now)
