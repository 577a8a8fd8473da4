"""Which model is looked at next: edges, then urgent ones, then those whose time has come.

Fair: of a slice, a quarter is left to those whose time has come. Edges are few: a model has one when somebody waits for
it who did not before.
"""

from __future__ import annotations

import heapq

from events.units import Instant

SLACK = 64
"""Outdated entries that the heap may hold beyond one for each model before it is built anew."""


class Agenda:
    """One entry a model. `edge`, `urgent` and `at` bring a model forward, never back."""

    __slots__ = ("_due", "_edges", "_heap", "_urgent")

    def __init__(self) -> None:
        self._edges: dict[str, None] = {}
        self._urgent: dict[str, None] = {}
        self._due: dict[str, Instant] = {}
        self._heap: list[tuple[Instant, str]] = []

    def edge(self, model: str) -> None:
        """Look at it before all others."""
        self._edges[model] = None

    def urgent(self, model: str) -> None:
        """Look at it at once."""
        self._urgent[model] = None

    def at(self, model: str, when: Instant) -> None:
        """Look at it then, unless it is looked at earlier."""
        due = self._due.get(model)
        if due is not None and due <= when:
            return
        self._due[model] = when
        heapq.heappush(self._heap, (when, model))
        if len(self._heap) > 2 * len(self._due) + SLACK:
            self._heap = [(when, model) for model, when in self._due.items()]
            heapq.heapify(self._heap)

    def forget(self, model: str) -> None:
        """It is gone."""
        self._edges.pop(model, None)
        self._urgent.pop(model, None)
        self._due.pop(model, None)

    @property
    def has_edges(self) -> bool:
        """Whether a model has an edge."""
        return bool(self._edges)

    def next_at(self) -> Instant | None:
        """When the next model is due; None when none is. Edges and urgent ones are due at the beginning of time."""
        if self._edges or self._urgent:
            return Instant(0.0)
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    def take_edges(self, most: int) -> list[str]:
        """Up to `most` models that have an edge, each of them once."""
        taken: list[str] = []
        while self._edges and len(taken) < most:
            model = next(iter(self._edges))
            del self._edges[model]
            self._urgent.pop(model, None)
            self._due.pop(model, None)
            taken.append(model)
        return taken

    def take(self, now: Instant, most: int) -> list[str]:
        """Up to `most` models to look at now, each of them once; at least a quarter is left to the due ones."""
        self._drop_outdated()
        due = bool(self._heap) and self._heap[0][0] <= now
        room = most - most // 4 if due else most
        taken = self.take_edges(room)
        while self._urgent and len(taken) < room:
            model = next(iter(self._urgent))
            del self._urgent[model]
            self._due.pop(model, None)
            taken.append(model)
        while len(taken) < most:
            self._drop_outdated()
            if not self._heap or self._heap[0][0] > now:
                break
            model = heapq.heappop(self._heap)[1]
            del self._due[model]
            self._urgent.pop(model, None)
            taken.append(model)
        return taken

    def _drop_outdated(self) -> None:
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
