"""One timer for all connections: a wheel of coarse slots, so that a request costs no timer of its own.

A sleeper asks to be woken *by* an instant. Asking for a later instant than it is already set for costs one comparison:
it is woken early, looks at its own deadlines, and answers when to be woken next. So moving deadlines on, which is what
every byte does, is free.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from typing import Final, Protocol

from events.clock import Clock
from events.units import Instant

_SLOTS_A_SECOND: Final = 64
"""Resolution: a sleeper wakes at most 1/64 s late."""


class Sleeper(Protocol):
    """Something with deadlines. `wake_slot` belongs to the wheel; it starts as 0."""

    wake_slot: int

    def wake(self, now: Instant) -> float | None:
        """Act on what is due; answer when to be woken next, or None."""


class Wheel:
    """Wakes sleepers by their instants, read from `clock`."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._slots: dict[int, set[Sleeper]] = {}
        self._order: list[int] = []
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._floor = 0

    def __len__(self) -> int:
        """Sleepers that are set."""
        return sum(len(slot) for slot in self._slots.values())

    def wake_by(self, sleeper: Sleeper, instant: float) -> None:
        """Wake `sleeper` at `instant` at the latest; it may be woken earlier."""
        if instant == math.inf:
            return
        # Behind the slot being run, so that an instant already past cannot spin there.
        slot = max(int(instant * _SLOTS_A_SECOND), self._floor) + 1
        current = sleeper.wake_slot
        if current:
            if current <= slot:
                return
            self._slots[current].discard(sleeper)
        sleeper.wake_slot = slot
        sleepers = self._slots.get(slot)
        if sleepers is None:
            self._slots[slot] = {sleeper}
            heapq.heappush(self._order, slot)
            if self._handle is None or slot < self._armed_for:
                self._arm()
        else:
            sleepers.add(sleeper)

    def forget(self, sleeper: Sleeper) -> None:
        """Wake `sleeper` no more."""
        if sleeper.wake_slot:
            self._slots.get(sleeper.wake_slot, set()).discard(sleeper)
            sleeper.wake_slot = 0

    def run_due(self) -> None:
        """Wake everybody whose instant has come."""
        now = self._clock.now()
        self._floor = int(now * _SLOTS_A_SECOND)
        try:
            while self._order and self._order[0] <= self._floor:
                self._run_slot(heapq.heappop(self._order), now)
        finally:
            self._arm()

    def close(self) -> None:
        """Wake nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._slots.clear()
        self._order.clear()

    def _run_slot(self, slot: int, now: Instant) -> None:
        sleepers = self._slots[slot]
        try:
            while sleepers:
                sleeper = sleepers.pop()
                sleeper.wake_slot = 0
                due = sleeper.wake(now)
                if due is not None:
                    self.wake_by(sleeper, due)
        finally:
            if sleepers:  # one of them raised: the others keep their turn
                heapq.heappush(self._order, slot)
            else:
                del self._slots[slot]

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._order and not self._slots[self._order[0]]:
            del self._slots[heapq.heappop(self._order)]
        if self._order:
            self._armed_for = self._order[0]
            delay = self._armed_for / _SLOTS_A_SECOND - self._clock.now()
            self._handle = self._loop.call_later(max(0.0, delay), self.run_due)
