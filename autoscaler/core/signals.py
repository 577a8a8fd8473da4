"""Numbers from outside: what others measured, and what others asked for. Bounded, and each with an end."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Instant, Seconds

SIGNALS_MOST = 16
"""Signals kept a model; the one that runs out first makes room."""

FLOORS_MOST = 8
"""Activations kept a model (after those that another one covers are dropped); the shortest makes room."""

BACKLOG_VALID = Seconds(60.0)
"""A measured backlog counts for this long, as `signal.measured` does by default."""

LASTS_MOST = Seconds(30 * 86_400.0)
"""Nothing from outside counts for longer than thirty days without being said again."""

NEED_MOST = 1_000_000.0
"""Replicas that a signal may ask for: what is above is taken for a mistake of its sender."""


@dataclass(frozen=True, slots=True)
class _Signal:
    """`target` None: the model's own target."""

    value: float
    target: float | None
    until: Instant
    valid_for: Seconds


@dataclass(frozen=True, slots=True)
class Needed:
    """`replicas` that the valid signals need (the largest need counts); how many have run out; when this changes."""

    replicas: float = 0.0
    stale: int = 0
    changes_at: Instant | None = None


NO_SIGNALS = Needed()


class Signals:
    """The newest value of each named signal of a model.

    A signal that has run out is stale for as long again as it was valid: nothing is taken away meanwhile. Then it is
    forgotten: its sender was taken down.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, _Signal] = {}

    def measured(self, name: str, amount: tuple[float, float | None], at: Instant, valid_for: Seconds) -> None:
        """The newest (value, target) of a signal."""
        if name not in self._kept and len(self._kept) >= SIGNALS_MOST:
            del self._kept[min(self._kept, key=lambda one: self._kept[one].until)]
        value, target = amount
        lasts = min(valid_for, LASTS_MOST)
        self._kept[name] = _Signal(value, target, Instant(at + lasts), lasts)

    def needed(self, now: Instant, target: float) -> Needed:
        """What the signals need at `now`, for a model with this target."""
        replicas, stale = 0.0, 0
        changes_at: Instant | None = None
        for name, signal in list(self._kept.items()):
            end = signal.until
            if now < end:
                replicas = max(replicas, min(NEED_MOST, signal.value / (signal.target or target)))
            else:
                end = Instant(end + signal.valid_for)
                if now >= end:
                    del self._kept[name]
                    continue
                stale += 1
            changes_at = end if changes_at is None else min(changes_at, end)
        return Needed(replicas, stale, changes_at)

    def __len__(self) -> int:
        return len(self._kept)


class Floors:
    """What activations ask for: at least so many replicas until then.

    Kept as a staircase: whoever asks for no more and no longer than another is covered by it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[tuple[Instant, int], ...] = ()

    def ask(self, replicas: int, until: Instant, at: Instant) -> None:
        """At least `replicas` until `until`, asked at `at`."""
        until = min(until, Instant(at + LASTS_MOST))
        if any(other >= replicas and end >= until for end, other in self._kept):
            return
        rest = [(end, other) for end, other in self._kept if other > replicas or end > until]
        self._kept = tuple(sorted([*rest, (until, replicas)])[-FLOORS_MOST:])

    def now(self, now: Instant) -> tuple[int, Instant | None]:
        """The floor at `now` and when it sinks; (0, None) without one."""
        if not self._kept:
            return 0, None
        if self._kept[0][0] <= now:
            self._kept = tuple(one for one in self._kept if one[0] > now)
            if not self._kept:
                return 0, None
        until, replicas = self._kept[0]
        return replicas, until
