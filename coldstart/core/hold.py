"""The hold queue: requests that wait for a slot, bounded by count, bytes and age.

First come first served within a caller, callers in turn. Entering, leaving, serving and cancelling take constant time,
apart from the two heaps of deadlines and arrivals (logarithmic; constant when they grow in order, as they mostly do).
Nothing here knows what a slot is or who serves the requests.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from coldstart.core.policy import HoldPolicy
from events.units import Bytes, Instant


@dataclass(frozen=True, slots=True)
class Held:
    """One request that waits. `deadline` is absolute and counts from the arrival, also when it comes back."""

    request: str
    caller: str
    arrived_at: Instant
    deadline: Instant
    bytes: int


class HoldRefusal(Enum):
    """Why a request may not wait."""

    COUNT = "as many requests wait for this model as may"
    BYTES = "the requests that wait for this model fill its bytes"
    COUNT_IN_ALL = "as many requests wait as may, over all models"
    BYTES_IN_ALL = "the requests that wait fill the bytes, over all models"
    TOO_OLD = "its deadline has passed"


class HoldBudget:
    """What all hold queues of a process may hold together. Each queue takes from it and gives back."""

    __slots__ = ("bytes", "max_bytes", "max_requests", "requests")

    def __init__(self, max_requests: int, max_bytes: Bytes) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.requests = 0
        self.bytes = 0

    def refusal(self, size: int) -> HoldRefusal | None:
        """Why one more request of `size` bytes does not fit, or None."""
        if self.requests >= self.max_requests:
            return HoldRefusal.COUNT_IN_ALL
        if self.bytes + size > self.max_bytes:
            return HoldRefusal.BYTES_IN_ALL
        return None

    def change(self, requests: int, size: int) -> None:
        """Take (positive) or give back (negative)."""
        self.requests += requests
        self.bytes += size


class HoldQueue:
    """The requests that wait for one model."""

    __slots__ = ("_arrivals", "_budget", "_bytes", "_callers", "_deadlines", "_held", "policy")

    def __init__(self, policy: HoldPolicy, budget: HoldBudget) -> None:
        self.policy = policy
        """May be replaced at any time; it binds whoever comes next."""
        self._budget = budget
        self._bytes = 0
        self._held: dict[str, _Place] = {}
        # Callers in the order of their turns; of each, its requests in order. OrderedDict, because a plain dict is slow
        # when entries leave at the front (it walks over the holes).
        self._callers: OrderedDict[str, OrderedDict[str, _Place]] = OrderedDict()
        self._deadlines = _Earliest(self._held)
        self._arrivals = _Earliest(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request: str) -> bool:
        return request in self._held

    def __iter__(self) -> Iterator[Held]:
        """All that wait, in no promised order."""
        return (place.held for place in self._held.values())

    @property
    def bytes(self) -> int:
        """Bytes of all bodies that wait."""
        return self._bytes

    def push(self, held: Held, now: Instant, *, returning: bool = False) -> HoldRefusal | None:
        """Let a request wait, or say why not. A returning one (another try) goes to the head of its caller's.

        Its age counts from its arrival: it waits to its deadline or `max_wait` from its arrival, whichever is first.
        Raises ValueError when a request of this name waits already: that is the caller's fault.
        """
        if held.request in self._held:
            raise ValueError(f"request {held.request!r} waits already")
        deadline = Instant(min(held.deadline, held.arrived_at + self.policy.max_wait))
        refusal = self._refusal(held.bytes, deadline, now)
        if refusal is not None:
            return refusal
        self._enter(held, deadline, returning=returning)
        self._bytes += held.bytes
        self._budget.change(1, held.bytes)
        return None

    def pop(self) -> Held | None:
        """The next to be served: the first of the caller whose turn it is, whose next turn comes after all others'."""
        if not self._callers:
            return None
        caller, line = next(iter(self._callers.items()))
        place = next(iter(line.values()))
        self._leave(place)
        if line:
            self._callers.move_to_end(caller)
        return place.held

    def cancel(self, request: str) -> Held | None:
        """Take out a request that waits; None when it does not (any more)."""
        place = self._held.get(request)
        if place is None:
            return None
        self._leave(place)
        return place.held

    def expire(self, now: Instant) -> list[Held]:
        """Take out all whose deadline is at or before `now`, earliest first."""
        gone: list[Held] = []
        while (place := self._deadlines.first()) is not None and place.deadline <= now:
            self._leave(place)
            gone.append(place.held)
        return gone

    def clear(self) -> list[Held]:
        """Take out all, in the order in which they would have been served."""
        gone: list[Held] = []
        while (held := self.pop()) is not None:
            gone.append(held)
        return gone

    def next_deadline(self) -> Instant | None:
        """The earliest deadline of all that wait."""
        place = self._deadlines.first()
        return None if place is None else place.deadline

    def oldest_arrival(self) -> Instant | None:
        """The earliest arrival of all that wait."""
        place = self._arrivals.first()
        return None if place is None else place.held.arrived_at

    def ahead(self, request: str) -> int:
        """How many are served before this one, at most, if nobody leaves and nobody returns. 0 when it does not wait.

        Takes time in proportion to the number of callers. (An upper bound: gaps left by requests that were cancelled
        further back in a caller's line still count.)
        """
        place = self._held.get(request)
        if place is None:
            return 0
        own = self._callers[place.held.caller]
        before = place.seat - _first(own).seat
        ahead, passed = before, False
        for line in self._callers.values():
            if line is own:
                passed = True
            else:
                ahead += min(len(line), before if passed else before + 1)
        return ahead

    def _refusal(self, size: int, deadline: Instant, now: Instant) -> HoldRefusal | None:
        if deadline <= now:
            return HoldRefusal.TOO_OLD
        if len(self._held) >= self.policy.max_requests:
            return HoldRefusal.COUNT
        if self._bytes + size > self.policy.max_bytes:
            return HoldRefusal.BYTES
        return self._budget.refusal(size)

    def _enter(self, held: Held, deadline: Instant, *, returning: bool) -> None:
        line = self._callers.get(held.caller)
        if line is None:
            line = self._callers[held.caller] = OrderedDict()
            seat = 0
        else:
            seat = _first(line).seat - 1 if returning else _last(line).seat + 1
        place = _Place(held, deadline, seat)
        self._held[held.request] = line[held.request] = place
        if returning:
            line.move_to_end(held.request, last=False)
        self._deadlines.add(deadline, place)
        self._arrivals.add(held.arrived_at, place)

    def _leave(self, place: _Place) -> None:
        held = place.held
        del self._held[held.request]
        line = self._callers[held.caller]
        del line[held.request]
        if not line:
            del self._callers[held.caller]
        self._bytes -= held.bytes
        self._budget.change(-1, -held.bytes)
        self._deadlines.tidy()
        self._arrivals.tidy()


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where a request stands: `seat` numbers grow along its caller's line (with gaps)."""

    held: Held
    deadline: Instant
    seat: int


def _first(line: OrderedDict[str, _Place]) -> _Place:
    return next(iter(line.values()))


def _last(line: OrderedDict[str, _Place]) -> _Place:
    return next(reversed(line.values()))


class _Earliest:
    """A heap over the places that are still held; those that left are dropped when they come to its top.

    It is rebuilt when more than half of it has left, so it never grows beyond twice what is held, and a rebuild costs
    nothing over time.
    """

    __slots__ = ("_count", "_heap", "_held")

    def __init__(self, held: dict[str, _Place]) -> None:
        self._held = held
        self._heap: list[tuple[float, int, _Place]] = []
        self._count = 0

    def add(self, at: float, place: _Place) -> None:
        self._count += 1  # breaks ties in the order of arrival, and keeps the heap from comparing places
        heapq.heappush(self._heap, (at, self._count, place))

    def first(self) -> _Place | None:
        while self._heap:
            place = self._heap[0][2]
            if self._held.get(place.held.request) is place:
                return place
            heapq.heappop(self._heap)
        return None

    def tidy(self) -> None:
        if len(self._heap) > 2 * len(self._held) + 64:  # 64: small heaps are not worth the work
            self._heap = [entry for entry in self._heap if self._held.get(entry[2].held.request) is entry[2]]
            heapq.heapify(self._heap)
