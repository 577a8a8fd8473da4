"""The newest window of each gateway and revision of a model, and what they say together at one instant."""

from __future__ import annotations

from events.types.requests import RequestWindow
from events.units import Instant, Seconds

SILENCE = Seconds(3.0)
"""A gateway that has requests sends a window each second (design §4); after three that were not there to be
read it is silent."""

LEVEL_MOST = 1_000_000
"""Requests that one window may claim to run, or to wait: what is above is taken for a mistake of its writer."""

SAME = 1e-6
"""Seconds between two instants that are one: more than rounding, less than any clock of a log tells."""

WINDOW_MOST = Seconds(86_400.0)
"""The longest window, and the latest deadline from now, that are believed."""

UNTOLD_MOST = 8
"""Stretches of time that are remembered of a source because it told nothing of them: the newest."""

Stretch = tuple[float, float, float]
"""Begin, end, and which part of a whole lies between them."""


class Source:
    """The newest window of one gateway and revision, and the instants in it moved to the log's time."""

    __slots__ = (
        "_untold", "arrivals", "at", "deadline", "ended_at", "finishes", "gateway", "integral", "level", "oldest_at",
        "running", "running_seconds", "started_at", "starts", "waiting",
    )  # fmt: skip

    def __init__(self, window: RequestWindow, at: Instant) -> None:
        """A source of which nothing was counted yet: its window begins, empty."""
        self.gateway = window.gateway
        self.started_at = self.ended_at = window.started_at
        self.at = at
        self._untold: list[tuple[float, float]] = [(at - WINDOW_MOST, at)]
        self.level = self.running = self.waiting = 0
        self.integral = self.running_seconds = 0.0
        self.arrivals = self.starts = self.finishes = 0
        self.oldest_at: float | None = None
        self.deadline: float | None = None

    def settle(self, window: RequestWindow, at: Instant) -> int:
        """`window` is the newest from now on. Returns by how much the level rose."""
        running, waiting = min(window.now.running, LEVEL_MOST), min(window.now.waiting, LEVEL_MOST)
        rose = running + waiting - self.level
        self.level, self.running, self.waiting = running + waiting, running, waiting
        self.started_at, self.ended_at, self.at = window.started_at, window.ended_at, at
        self.running_seconds, self.integral = integrals(window)
        self.arrivals, self.starts = window.arrivals, window.starts
        self.finishes = window.finishes + window.failures
        oldest, deadline = window.oldest_waiting_since, window.earliest_deadline
        self.oldest_at = None if oldest is None else at - max(0.0, window.ended_at - oldest)
        self.deadline = None if deadline is None else at + min(max(0.0, deadline - window.ended_at), WINDOW_MOST)
        return rose

    def stretches(self, at: Instant, length: float, bridged: float) -> list[Stretch]:
        """Where in time lies what a window of so many seconds tells, that was appended at `at`: right before it, but
        not where this source has told of already. A log that was slow, or away, takes what was said meanwhile all at
        once, and that is no burst: the rest lies where nothing was told, the latest first. `bridged`: seconds before
        the window that need no telling."""
        start = at - length
        if start - bridged > self.at + SAME:
            self._untold.append((self.at, start - bridged))
            del self._untold[:-UNTOLD_MOST]
        if start > self.at - SAME or length < SAME:
            return [(start, at, 1.0)]
        found: list[Stretch] = [(self.at, at, (at - self.at) / length)] if at > self.at + SAME else []
        back = self.at - start
        while back > SAME and self._untold:
            begin, end = self._untold.pop()
            taken = min(back, end - begin)
            found.append((end - taken, end, taken / length))
            back -= taken
            if end - taken > begin + SAME:
                self._untold.append((begin, end - taken))
        if back > SAME:
            found.append((start, start + back, back / length))
        return found


def integrals(window: RequestWindow) -> tuple[float, float]:
    """Request-seconds of what ran, and of all, as far as they are believed."""
    most = LEVEL_MOST * (window.ended_at - window.started_at)
    served = min(window.running_seconds, most)
    return served, min(served + window.waiting_seconds, most)


class Levels:
    """Sums over the sources of a model at one instant.

    `stable`, `panic`: request-seconds that have gathered since the newest windows, in the last so many seconds.
    `silent`: sources that should have spoken.
    """

    __slots__ = (
        "_panic_span", "_stable_span", "age", "deadline", "oldest", "panic", "running", "silent", "stable", "waiting",
    )  # fmt: skip

    def __init__(self, stable_span: Seconds, panic_span: Seconds) -> None:
        self._stable_span, self._panic_span = stable_span, panic_span
        self.running = self.waiting = self.silent = 0
        self.stable = self.panic = 0.0
        self.age: float | None = None
        self.oldest: float | None = None
        self.deadline: Instant | None = None

    def take(self, source: Source, now: Instant, behind: Seconds) -> None:
        """Add a source that has requests. `behind`: how far the log has not been read."""
        age = now - source.at if now > source.at else 0.0
        if self.age is None or age > self.age:
            self.age = age
        if age > SILENCE + behind:
            self.silent += 1
            return
        self.running += source.running
        self.waiting += source.waiting
        self.stable += source.level * min(age, self._stable_span)
        self.panic += source.level * min(age, self._panic_span)
        if source.oldest_at is not None:
            waited = max(0.0, now - source.oldest_at)
            self.oldest = waited if self.oldest is None else max(self.oldest, waited)
        if source.deadline is not None and (self.deadline is None or source.deadline < self.deadline):
            self.deadline = Instant(source.deadline)
