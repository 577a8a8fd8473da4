"""An amount by time, kept for one span: what was added in the last `span` seconds, in a fixed number of cells."""

from __future__ import annotations

from array import array
from math import floor

from events.units import Instant, Seconds


class Ring:
    """Adds amounts that are spread evenly over an interval; tells their sum over the span before any instant.

    Exact but for the oldest cell, whose amount counts by the part of the cell that is still inside the span.
    """

    __slots__ = ("_cells", "_head", "_width", "span")

    def __init__(self, span: Seconds, cells: int) -> None:
        self.span = span
        self._width = span / cells
        self._cells = array("d", bytes(8 * (cells + 1)))
        self._head = -(1 << 62)

    def add(self, start: float, end: float, amount: float) -> None:
        """Spread `amount` over [start, end], or put all of it at `end`. What lies before the span is lost."""
        width = self._width
        last = floor(end / width)
        self._advance(last)
        cells = self._cells
        count = len(cells)
        if last <= self._head - count:
            return
        first = floor(start / width)
        if first >= last:
            cells[last % count] += amount
            return
        rate = amount / (end - start)
        cells[last % count] += rate * (end - last * width)
        oldest = max(first, self._head - count + 1)
        for index in range(oldest, last):
            begin = start if index == first else index * width
            cells[index % count] += rate * ((index + 1) * width - begin)

    def total(self, now: Instant) -> float:
        """What was added for (now - span, now]."""
        width = self._width
        self._advance(floor(now / width))
        cells = self._cells
        count = len(cells)
        passed = now / width - self._head
        expired = cells[(self._head + 1) % count] * min(1.0, max(0.0, passed))
        return max(0.0, sum(cells) - expired)

    def _advance(self, index: int) -> None:
        steps = index - self._head
        if steps <= 0:
            return
        cells = self._cells
        count = len(cells)
        if steps >= count:
            for cell in range(count):
                cells[cell] = 0.0
        else:
            for step in range(self._head + 1, index + 1):
                cells[step % count] = 0.0
        self._head = index
