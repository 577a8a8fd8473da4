"""Who runs and who waits inside the simulated engine. Nothing here knows HTTP or time.

As in llama.cpp and vLLM: requests beyond the slots (or the free KV cache) wait in one queue, first come first served.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol


class Admitted(Protocol):
    """A request as admission sees it."""

    @property
    def kv_tokens(self) -> int:
        """KV cache that it fills in the end."""

    def begin(self) -> None:
        """It has a slot now."""


class QueueFull(Exception):
    """More requests wait than the engine holds."""


class NeverFits(Exception):
    """The request needs more KV cache than there is."""


@dataclass(slots=True)
class Counts:
    """`peak` is the greatest number of requests that were inside at the same time, waiting ones included."""

    total: int = 0
    peak: int = 0
    finished: int = 0
    cancelled: int = 0
    abandoned: int = 0
    failed: int = 0
    refused: int = 0
    broken: int = 0


class Admission:
    """Slots, the queue beyond them, and the KV cache."""

    def __init__(self, slots: int, waiting: int, kv_tokens: int) -> None:
        self.slots = slots
        self.counts = Counts()
        self._max_waiting = waiting
        self._kv_limit = kv_tokens
        self._kv_used = 0
        self._running: set[Admitted] = set()
        self._waiting: OrderedDict[Admitted, None] = OrderedDict()

    @property
    def running(self) -> int:
        """Requests in slots."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_use(self) -> float:
        """Share of the KV cache in use, 0 to 1; 0 when there is no limit."""
        return self._kv_used / self._kv_limit if self._kv_limit else 0.0

    def enter(self, request: Admitted) -> None:
        """Run it now or queue it. Raises QueueFull, or NeverFits when waiting would not help."""
        if self._kv_limit and request.kv_tokens > self._kv_limit:
            raise NeverFits(f"{request.kv_tokens} tokens are more than the KV cache's {self._kv_limit}")
        if not self._fits(request) or self._waiting:
            if len(self._waiting) >= self._max_waiting:
                raise QueueFull(f"{len(self._waiting)} requests wait already")
            self._waiting[request] = None
        self.counts.peak = max(self.counts.peak, self.running + self.waiting + (request not in self._waiting))
        if request not in self._waiting:
            self._start(request)

    def leave(self, request: Admitted) -> None:
        """It is done or gone; whoever waits and fits now begins. A request that is not inside is ignored."""
        if request in self._waiting:
            del self._waiting[request]
        elif request in self._running:
            self._running.remove(request)
            self._kv_used -= request.kv_tokens
        else:
            return
        while self._waiting and self._fits(head := next(iter(self._waiting))):
            del self._waiting[head]
            self._start(head)

    def _fits(self, request: Admitted) -> bool:
        has_room = not self._kv_limit or self._kv_used + request.kv_tokens <= self._kv_limit
        return len(self._running) < self.slots and has_room

    def _start(self, request: Admitted) -> None:
        self._running.add(request)
        self._kv_used += request.kv_tokens
        request.begin()


class SeenIds:
    """The last ids of requests, to show that none ran twice. Keeps at most `limit` of them."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._times: OrderedDict[str, int] = OrderedDict()
        self.duplicates = 0

    def add(self, request_id: str) -> None:
        """Count one more arrival of that id."""
        times = self._times.get(request_id, 0) + 1
        self._times[request_id] = times
        if times > 1:
            self.duplicates += 1
        if len(self._times) > self._limit:
            self._times.popitem(last=False)

    def __len__(self) -> int:
        return len(self._times)

    def newest(self, count: int) -> list[str]:
        """The last ids, oldest of them first."""
        return list(self._times)[-count:] if count else []

    def repeated(self, count: int = 100) -> dict[str, int]:
        """Ids that arrived more than once, at most `count`, with how often."""
        found: dict[str, int] = {}
        for request_id, times in self._times.items():
            if times > 1:
                found[request_id] = times
                if len(found) >= count:
                    break
        return found
