"""Requests at work on simulated replicas: how long each takes, and who slows whom.

`Fixed`: a request's time is settled when it begins, by how many are beside it then. `Sharing`: those on a replica share
it as long as they run (processor sharing): with n of them each goes on at the speed 1 / curve(n), and who comes later
slows those that are there. Replicas that are busy on one node slow each other too (`Setting.neighbours`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from deploy.simulation.pool import Replica
from deploy.simulation.setting import Setting

First = Callable[[int, float], None]
"""Told of a request's first token: when it comes, or (at once) when it will."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request's size."""

    request: int
    tokens: tuple[int, int]
    seconds: float


class Work(Protocol):
    """What runs. Instants are those of the simulation."""

    def begin(self, asked: Asked, replica: Replica, now: float) -> None:
        """It begins on this replica, which counts it already."""

    def next_at(self) -> float:
        """When something ends or changes; infinite: nothing does."""

    def due(self, now: float) -> list[tuple[int, Replica]]:
        """Requests that have ended by now, in order."""


class Fixed:
    """See the module."""

    def __init__(self, setting: Setting, begins: float, first: First) -> None:
        self._setting, self._begins, self._first = setting, begins, first
        self._ends: list[tuple[float, int, Replica]] = []

    def begin(self, asked: Asked, replica: Replica, now: float) -> None:
        """See `Work`."""
        first, whole = self._setting.service.times(asked.tokens, asked.seconds, replica.running - 1)
        factor = self._setting.factor(now - self._begins)
        self._first(asked.request, now + first * factor)
        heapq.heappush(self._ends, (now + whole * factor, asked.request, replica))

    def next_at(self) -> float:
        """See `Work`."""
        return self._ends[0][0] if self._ends else inf

    def due(self, now: float) -> list[tuple[int, Replica]]:
        """See `Work`."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            _, request, replica = heapq.heappop(self._ends)
            ended.append((request, replica))
        return ended


@dataclass(slots=True, eq=False)
class _Shared:
    """What runs on one replica. `done`: work done for each of its requests since it was last empty, in seconds of a
    request alone; `marks`: what each of them needs, to its first token and to its end."""

    replica: Replica
    at: float
    done: float = 0.0
    speed: float = 1.0
    version: int = 0
    running: int = 0
    marks: list[tuple[float, int, bool]] = field(default_factory=list)


class Sharing:
    """See the module. Each begin and end on a replica takes time in its requests' logarithm; with `neighbours` also in
    the replicas of its node."""

    def __init__(self, setting: Setting, begins: float, first: First) -> None:
        self._setting, self._begins, self._first = setting, begins, first
        self._shared: dict[Replica, _Shared] = {}
        self._alarms: list[tuple[float, int, int, _Shared]] = []
        self._count = 0
        self._busy: dict[int, dict[Replica, _Shared]] = {}
        self._changes = sorted(begins + one.at for one in setting.slowness)

    def begin(self, asked: Asked, replica: Replica, now: float) -> None:
        """See `Work`."""
        first, whole = self._setting.service.times(asked.tokens, asked.seconds, 0, alone=True)
        shared = self._shared.get(replica)
        if shared is None:
            shared = self._shared[replica] = _Shared(replica, now)
        self._go_on(shared, now)
        heapq.heappush(shared.marks, (shared.done + first, asked.request, False))
        heapq.heappush(shared.marks, (shared.done + whole, asked.request, True))
        shared.running += 1
        self._renew(shared, now)

    def next_at(self) -> float:
        """See `Work`."""
        while self._alarms and self._alarms[0][3].version != self._alarms[0][2]:
            heapq.heappop(self._alarms)
        at = self._alarms[0][0] if self._alarms else inf
        return min(at, self._changes[0]) if self._changes else at

    def due(self, now: float) -> list[tuple[int, Replica]]:
        """See `Work`."""
        ended: list[tuple[int, Replica]] = []
        while self._changes and self._changes[0] <= now:
            self._changes.pop(0)
            for shared in list(self._shared.values()):
                self._go_on(shared, now)
                self._pace(shared, now)
        while self.next_at() <= now:
            shared = heapq.heappop(self._alarms)[3]
            self._go_on(shared, now)
            shared.done = max(shared.done, shared.marks[0][0])  # rounding must not leave it just short
            while shared.marks and shared.marks[0][0] <= shared.done:
                _, request, ends = heapq.heappop(shared.marks)
                if ends:
                    ended.append((request, shared.replica))
                    shared.running -= 1
                else:
                    self._first(request, now)
            self._renew(shared, now)
        return ended

    def _go_on(self, shared: _Shared, now: float) -> None:
        """What was done since."""
        shared.done += (now - shared.at) * shared.speed
        shared.at = now

    def _renew(self, shared: _Shared, now: float) -> None:
        """More or fewer run on it: its own speed, and its neighbours' if it fell idle or woke."""
        node = shared.replica.node
        around = self._busy.setdefault(node, {}) if node is not None else {}
        was = shared.replica in around
        if not shared.running:
            del self._shared[shared.replica]
            around.pop(shared.replica, None)
            shared.version += 1
        else:
            around[shared.replica] = shared
            self._pace(shared, now)
        if node is not None and self._setting.neighbours and was != bool(shared.running):
            for other in list(around.values()):
                if other is not shared:
                    self._go_on(other, now)
                    self._pace(other, now)

    def _pace(self, shared: _Shared, now: float) -> None:
        """Its speed from now on, and when its next mark comes."""
        setting, node = self._setting, shared.replica.node
        others = len(self._busy[node]) - 1 if node is not None and node in self._busy else 0
        slow = setting.service.slow(shared.running) * setting.factor(now - self._begins)
        shared.speed = 1.0 / (slow * (1.0 + setting.neighbours * max(0, others)))
        shared.version += 1
        self._count += 1
        at = now + max(0.0, shared.marks[0][0] - shared.done) / shared.speed
        heapq.heappush(self._alarms, (at, self._count, shared.version, shared))
