"""How long it takes until as many have ended as ran at a time, and since when as many have begun as run now: an engine
that gets slower shows at once in those, where a mean over a window is still half of what was before.

By Little's law both are how long a request takes, whatever the spread: of N that run at a time, N end, and N begin, in
the mean of their time. In a burst nobody ran before its begin, so it is never said to be longer than the burst is old.
The beginnings need not wait for an answer to end: they show an engine that stands still from its first second on.
"""

from __future__ import annotations

from math import ceil

from autoscaler.core.rings import Ring
from events.units import Instant, Seconds

LEAST = 8.0
"""So many must have run at a time for it to say anything: of few, one long answer is not their mean. Chosen."""

FEWER = 1.25
"""So many times fewer must have ended than ran: the two jitter, and windows come by the second. Chosen."""

LATE = Seconds(2.0)
"""What happened since is not asked: windows of the last second are still on their way."""


UNSEEN = Seconds(1.0)
"""What began in the last second may not have been told yet: gateways speak by the second."""


class Turnover:
    """Running requests, begins and finishes of one model by time, for one span."""

    __slots__ = ("_begins", "_cells", "_finishes", "_running", "_width")

    def __init__(self, span: Seconds, cells: int) -> None:
        self._width, self._cells = span / cells, cells
        self._running, self._begins, self._finishes = Ring(span, cells), Ring(span, cells), Ring(span, cells)

    def add(self, start: float, end: float, running_seconds: float, begins: float, finishes: float) -> None:
        """What ran, began and ended, between two instants."""
        if running_seconds > 0.0:
            self._running.add(start, end, running_seconds)
        if finishes > 0:
            self._finishes.add(start, end, finishes)
        if begins > 0:
            self._begins.add(start, end, begins)

    def at_least(self, seconds: float, running: int, now: Instant) -> float:
        """How long a request takes now: `seconds`, or longer where fewer have ended since than ran so long ago, or
        fewer have begun since than run now."""
        return max(self._ended(seconds, now), self._begun(seconds, running, now))

    def _begun(self, seconds: float, running: int, now: Instant) -> float:
        """By begins. A gateway that tells of none says nothing of how long requests take."""
        if running < LEAST:
            return seconds
        begins, begun, back = self._begins.back(now), 0.0, 0
        while back < self._cells and begun * FEWER < running:
            begun += begins[back]
            back += 1
        return max(seconds, (back - 1) * self._width - UNSEEN) if begun else seconds

    def _ended(self, seconds: float, now: Instant) -> float:
        late = ceil(LATE / self._width)
        back = max(1, ceil(seconds / self._width))
        if late + back > self._cells:
            return seconds
        running = self._running.back(now)
        if running[late + back] < LEAST * self._width:
            return seconds
        finishes = self._finishes.back(now)
        ended, longest = sum(finishes[late : late + back]), seconds
        while late + back <= self._cells:
            ran = running[late + back] / self._width
            if ran < LEAST or ended * FEWER >= ran:
                break
            longest = max(longest, back * self._width)
            ended += finishes[late + back]
            back += 1
        return longest
