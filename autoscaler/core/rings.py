"""An amount by time, kept for one span: what was added in the last `span` seconds, in a fixed number of cells."""

from __future__ import annotations

from array import array
from math import floor

from events.units import Instant, Seconds


class Ring:
    """Adds amounts that are spread evenly over an interval; tells their sum over the span before any instant.

    Exact but for the oldest cell, whose amount counts by the part of the cell that is still inside the span.
    """

    __slots__ = ("_cells", "_head", "_sum", "_width", "span")

    def __init__(self, span: Seconds, cells: int) -> None:
        self.span = span
        self._width = span / cells
        self._cells = array("d", bytes(8 * (cells + 1)))
        self._head = -(1 << 62)
        self._sum = 0.0
        """Of all cells; summed anew each time round, so that rounding does not gather."""

    def add(self, start: float, end: float, amount: float) -> None:
        """Spread `amount` over [start, end], or put all of it at `end`. What lies before the span is lost."""
        width = self._width
        last = floor(end / width)
        if last > self._head:
            self._advance(last)
        cells = self._cells
        count = len(cells)
        if last <= self._head - count:
            return
        first = floor(start / width)
        if first >= last:
            cells[last % count] += amount
            self._sum += amount
            return
        rate = amount / (end - start)
        added = rate * (end - last * width)
        cells[last % count] += added
        for index in range(max(first, self._head - count + 1), last):
            begin = start if index == first else index * width
            piece = rate * ((index + 1) * width - begin)
            cells[index % count] += piece
            added += piece
        self._sum += added

    def total(self, now: Instant) -> float:
        """What was added for (now - span, now]."""
        place = now / self._width
        if place >= self._head + 1:
            self._advance(floor(place))
        passed = place - self._head
        if passed <= 0.0:
            return self._sum
        cells = self._cells
        left = self._sum - cells[(self._head + 1) % len(cells)] * passed
        return max(0.0, left)

    def since(self, begin: float, now: Instant) -> float:
        """What was added for (begin, now], for a `begin` within the span; the cell of `begin` counts whole."""
        last = floor(now / self._width)
        if last > self._head:
            self._advance(last)
        first = max(floor(begin / self._width), last - len(self._cells) + 1)
        cells = self._cells
        begins, ends = first % len(cells), last % len(cells) + 1
        return sum(cells[begins:ends] if begins < ends else cells[begins:] + cells[:ends])

    def back(self, now: Instant) -> list[float]:
        """What is in each cell, that of `now` first."""
        last = floor(now / self._width)
        if last > self._head:
            self._advance(last)
        cells, ends = self._cells, last % len(self._cells) + 1
        return [*cells[:ends][::-1], *cells[ends:][::-1]]

    def _advance(self, index: int) -> None:
        """The newest cell is `index` from now on."""
        cells = self._cells
        count = len(cells)
        head, self._head = self._head, index
        if index - head >= count:
            self._cells = array("d", bytes(8 * count))
            self._sum = 0.0
            return
        while head < index:
            head += 1
            cell = head % count
            if gone := cells[cell]:
                self._sum -= gone
                cells[cell] = 0.0
            if cell == 0:
                self._sum = sum(cells)
