"""What activations ask for: so many replicas at least, until then; or until they are ready and the keep-alive after."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Instant, Seconds

FLOORS_MOST = 8
"""Activations kept a model, of each kind (after those that another one covers are dropped); the shortest makes room."""

LASTS_MOST = Seconds(30 * 86_400.0)
"""Nothing from outside counts for longer than thirty days without being said again."""

START_RATIO = 2.0
"""A start may take so many times as long as is expected before whoever asked for it is no longer waited for. The
expectation is a median, and the factor a choice: a start on a new node fetches again what others had."""

START_LEAST = Seconds(60.0)
"""It may take so long in any case: the estimate knows neither the wait for a place nor a busy machine."""

START_MOST = Seconds(900.0)
"""And so long at most, also where no start was ever seen: large weights over a slow network take minutes."""


def start_within(expected: Seconds | None) -> Seconds:
    """How long a start may take from when it was asked for, in seconds; `expected`: None before one was seen."""
    if expected is None:
        return START_MOST
    return Seconds(min(START_MOST, max(START_LEAST, START_RATIO * expected)))


@dataclass(frozen=True, slots=True)
class Floor:
    """At least `replicas` until `until`; of none: 0 and None. `opened`: they have not been ready yet, and `until` is
    only the latest end."""

    replicas: int = 0
    until: Instant | None = None
    opened: bool = False


NO_FLOOR = Floor()


@dataclass(frozen=True, slots=True)
class _Open:
    """Asked for at `asked_at` without an end, and not ready since. `failures`: failed starts there were by then."""

    until: Instant
    replicas: int
    asked_at: Instant
    failures: int


class Floors:
    """What is asked of one model.

    Kept as two staircases, of those with an end and of those that wait to be ready: whoever asks for no more and no
    longer than another of its kind is covered by it.
    """

    __slots__ = ("_kept", "_opened")

    def __init__(self) -> None:
        self._kept: tuple[tuple[Instant, int], ...] = ()
        self._opened: tuple[_Open, ...] = ()

    def ask(self, replicas: int, until: Instant, at: Instant) -> None:
        """At least `replicas` until `until`, asked at `at`."""
        until = min(until, Instant(at + LASTS_MOST))
        if any(other >= replicas and end >= until for end, other in self._kept):
            return
        rest = [(end, other) for end, other in self._kept if other > replicas or end > until]
        self._kept = tuple(sorted([*rest, (until, replicas)])[-FLOORS_MOST:])

    def open(self, replicas: int, until: Instant, at: Instant, failures: int) -> None:
        """At least `replicas` until they are ready (see `settle`), at the latest until `until`; asked at `at`."""
        if any(one.replicas >= replicas and one.until >= until for one in self._opened):
            return
        rest = [one for one in self._opened if one.replicas > replicas or one.until > until]
        one = _Open(until, replicas, at, failures)
        self._opened = tuple(sorted([*rest, one], key=lambda open_: open_.until)[-FLOORS_MOST:])

    def settle(self, ready: float, failures: int, at: Instant, keep_alive: Seconds) -> None:
        """At `at` so many were ready, and so many starts had failed since the last success: who has what was asked for,
        or saw a start fail, has the keep-alive from now on."""
        if not self._opened:
            return
        still = []
        for one in self._opened:
            if one.until <= at:
                continue
            if ready < one.replicas and failures <= one.failures:
                still.append(one)
            else:
                self.ask(one.replicas, Instant(at + keep_alive), at)
        self._opened = tuple(still)

    def settle_until(self, known_at: Instant, keep_alive: Seconds) -> None:
        """What was asked for up to `known_at` has the keep-alive from when it was asked for: a decision of that time
        knew of it, and remembers what of it was open."""
        for one in self._opened:
            if one.asked_at <= known_at:
                self.ask(one.replicas, Instant(one.asked_at + keep_alive), one.asked_at)
        self._opened = tuple(one for one in self._opened if one.asked_at > known_at)

    def now(self, now: Instant) -> Floor:
        """What is asked for at `now`, and when it sinks."""
        if self._kept and self._kept[0][0] <= now:
            self._kept = tuple(one for one in self._kept if one[0] > now)
        if self._opened and self._opened[0].until <= now:
            self._opened = tuple(one for one in self._opened if one.until > now)
        # The first of each staircase ends first, and asks for the most.
        found = Floor(self._kept[0][1], self._kept[0][0]) if self._kept else NO_FLOOR
        if self._opened:
            first = self._opened[0]
            if found.until is None or (first.replicas, first.until) >= (found.replicas, found.until):
                return Floor(first.replicas, first.until, opened=True)
        return found
