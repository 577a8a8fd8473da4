"""Which requests go to the engine together, and when. A state machine: arrivals and endings in, batches out.

Requests that may share a batch have the same key (path, model, every other parameter). While the engine is busy they
gather; when it can take a batch, the key whose oldest request has waited longest goes first, with its oldest requests
in order. So a batch is in the order in which the gateway's queue let them go, and its turns among callers stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from events.units import Instant, Seconds

EXPECTS: Final = 1.0
"""An idle engine waits for company only if so many more are expected within the window: else waiting is in vain."""

FORGET: Final = 0.8
"""Weight of the gaps so far in the mean gap between arrivals: about the last five count. Chosen."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """`most`: requests in one batch. `window`: how long the first waits for company while the engine is idle."""

    most: int
    window: Seconds


@dataclass(slots=True, eq=False)
class Member:
    """One request that waits. `size`: how many inputs it has itself; `left`: its client is gone."""

    name: str
    key: Hashable
    size: int
    at: Instant
    left: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes together."""

    key: Hashable
    members: tuple[Member, ...]


class Gatherer:
    """`add` and `leave`; `take` at `due` and after each `add` and `ended`. `parallel`: batches at a time."""

    def __init__(self, knobs: Knobs, parallel: int = 1, patient: bool = False) -> None:
        self.knobs = knobs
        self._parallel = parallel
        self._patient = patient
        """Whether the window is always waited for, as plain dynamic batchers do."""
        self._groups: dict[Hashable, deque[Member]] = {}
        self._gap: float | None = None
        self._last: Instant | None = None
        self.running = 0
        self.waiting = 0

    def add(self, member: Member) -> None:
        """A request came."""
        if self._last is not None:
            gap = min(max(0.0, member.at - self._last), 2.0 * self.knobs.window)  # a long silence is soon forgotten
            self._gap = gap if self._gap is None else FORGET * self._gap + (1.0 - FORGET) * gap
        self._last = member.at
        self._groups.setdefault(member.key, deque()).append(member)
        self.waiting += 1

    def leave(self, member: Member) -> None:
        """Its client is gone: it goes into no batch. Of one that is on its way already nothing changes."""
        group = self._groups.get(member.key)
        if member.left or group is None or member not in group:
            return
        member.left = True
        group.remove(member)
        self.waiting -= 1
        if not group:
            del self._groups[member.key]

    def ended(self) -> None:
        """A batch came back."""
        assert self.running > 0, "more batches ended than began"
        self.running -= 1

    def take(self, now: Instant) -> list[Batch]:
        """What goes to the engine now."""
        batches = []
        while self.running < self._parallel and (key := self._ready(now)) is not None:
            batches.append(self._cut(key))
            self.running += 1
        return batches

    def due(self, now: Instant) -> Instant | None:
        """When `take` has something without anything else happening; None: not by time alone."""
        if self.running >= self._parallel or not self._groups:
            return None
        return max(now, min(self._goes_at(group) for group in self._groups.values()))

    def _ready(self, now: Instant) -> Hashable | None:
        """The key that has waited longest of those that may go."""
        ready = [key for key, group in self._groups.items() if self._full(group) or self._goes_at(group) <= now]
        return min(ready, key=lambda key: self._groups[key][0].at) if ready else None

    def _full(self, group: deque[Member]) -> bool:
        total = 0
        for member in group:
            total += member.size
            if total >= self.knobs.most:
                return True
        return False

    def _goes_at(self, group: deque[Member]) -> Instant:
        """At the end of its window; at once if no company is expected, or if it waited for the engine."""
        window = self.knobs.window
        if not self._patient and (self._gap is None or self._gap * EXPECTS > window):
            window = Seconds(0.0)
        return Instant(group[0].at + window)

    def _cut(self, key: Hashable) -> Batch:
        """The oldest that fit; one that is too large for a batch goes alone."""
        group, members, total = self._groups[key], list[Member](), 0
        while group and (not members or total + group[0].size <= self.knobs.most):
            total += group[0].size
            members.append(group.popleft())
        if not group:
            del self._groups[key]
        self.waiting -= len(members)
        return Batch(key, tuple(members))
