"""How long each stage of a fetch was at work. Pure: time is an argument.

Several connections read side by side, and chunks are written and digested meanwhile. So the seconds of a stage are
those in which at least one was at it; of a fetch that is one pipeline they overlap, and add up to more than it took.
"""

from __future__ import annotations

from enum import Enum

from events.types.caches import FetchTimes
from events.units import Instant, Seconds


class Stage(Enum):
    """What the bytes pass."""

    NETWORK = "network"
    """They are asked for and read."""
    DISK = "disk"
    """They are written to the file."""
    DIGEST = "digest"
    """The in-order SHA-256 takes them in (BLAKE3 is taken by who reads, and in no stage)."""


class Busy:
    """Follows the stages of one fetch. Not thread-safe: its user holds a lock."""

    __slots__ = ("_at_it", "_began", "_first", "_last", "_seconds", "_since")

    def __init__(self, now: Instant) -> None:
        self._began = now
        self._at_it = dict.fromkeys(Stage, 0)
        self._since = dict.fromkeys(Stage, now)
        self._seconds = dict.fromkeys(Stage, 0.0)
        self._first: Instant | None = None
        self._last = now

    def began(self, stage: Stage, now: Instant) -> None:
        """One more is at it."""
        if not self._at_it[stage]:
            self._since[stage] = now
        self._at_it[stage] += 1
        if self._first is None:
            self._first = now

    def ended(self, stage: Stage, now: Instant) -> None:
        """One is no longer at it."""
        self._at_it[stage] -= 1
        if not self._at_it[stage]:
            self._seconds[stage] += max(0.0, now - self._since[stage])
        self._last = max(self._last, now)

    def times(self, now: Instant) -> FetchTimes:
        """As it stands when the weights are usable."""
        first = now if self._first is None else self._first
        network, disk, digest = (Seconds(round(self._until(part), 6)) for part in Stage)
        return FetchTimes(
            prepare=Seconds(max(0.0, first - self._began)), network=network, disk=disk, digest=digest,
            publish=Seconds(max(0.0, now - max(first, self._last))),
        )  # fmt: skip

    def _until(self, stage: Stage) -> float:
        """A reader that was broken off may not have ended: it counts until the last did."""
        going_on = max(0.0, self._last - self._since[stage]) if self._at_it[stage] else 0.0
        return self._seconds[stage] + going_on
