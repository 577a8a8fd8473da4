"""The line of one model: errands that wait for a ticket. Callers in turn; of each the highest priority, the oldest."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from events.units import Instant, Seconds
from runtime.core.inference.errand import Errand, State

_OF_A_NEW_RUN = 0.2
"""Weight of the newest run in the average: the last five or so count."""


class Queue:
    """Of one key. Entries whose errand waits no longer are passed over."""

    __slots__ = ("_callers", "alarm_at", "asked", "moved_at", "name", "not_before", "run_seconds", "running", "waiting")

    def __init__(self, name: str, now: Instant) -> None:
        self.name = name
        self._callers: OrderedDict[str, list[tuple[int, float, int, Errand]]] = OrderedDict()
        self.waiting: set[Errand] = set()
        """Whoever has no lease: in this line, with a ticket, until a time, or after another."""
        self.asked = 0
        self.running = 0
        self.not_before = Instant(0.0)
        """The model refused: it is not asked before."""
        self.alarm_at = Instant(0.0)
        """When it is looked at again because of `not_before`."""
        self.moved_at = now
        """When one of them got a slot last, or the line began."""
        self.run_seconds: Seconds | None = None
        """Of one request, on average; None: none has been seen yet."""

    def push(self, errand: Errand) -> None:
        """It waits for a ticket."""
        if errand.lined:
            return
        errand.lined = True
        arrival = errand.arrival
        entry = (-arrival.requested.priority, float(arrival.since), errand.number, errand)
        heapq.heappush(self._callers.setdefault(arrival.caller, []), entry)

    def pop(self, now: Instant) -> Errand | None:
        """Whose turn it is; its caller's next turn comes after all others'. None: nobody may go now."""
        for caller in list(self._callers):
            heap = self._callers[caller]
            while heap:
                errand = heapq.heappop(heap)[-1]
                errand.lined = False
                if errand.state is State.WAITING and errand in self.waiting and errand.not_before <= now:
                    self._callers.move_to_end(caller)
                    return errand
            del self._callers[caller]
        return None

    def ran(self, seconds: float) -> None:
        """A request took so long."""
        before = self.run_seconds
        self.run_seconds = Seconds(seconds if before is None else before + _OF_A_NEW_RUN * (seconds - before))

    @property
    def idle(self) -> bool:
        """Whether nothing is left of it."""
        return not self.waiting and not self.running
