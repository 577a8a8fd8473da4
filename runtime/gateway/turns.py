"""How many requests are begun in one turn of the event loop: few, so that a burst keeps nothing else waiting.

A thousand requests that arrive together would be read and parsed in a single turn, for 50 ms and more. The decision
that they cause needs several turns (window, wish and grant are each recorded), and would come only when all were read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

MOST: Final = 8
"""Requests begun in a turn: about half a millisecond of work. A turn costs a few microseconds, so much smaller
ones would cost more than they give."""


class Beginner(Protocol):
    """A connection that has bytes of a request."""

    def begin(self) -> None:
        """Go on now. Nothing happens when the connection is gone."""


class Turns:
    """Lets connections begin, in the order in which they came. Each waits here at most once: they see to that."""

    __slots__ = ("_armed", "_begun", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0
        self._armed = False
        self._waiting: deque[Beginner] = deque()

    def may_begin(self, beginner: Beginner) -> bool:
        """Whether it may go on at once; False: it will be told to, in one of the next turns."""
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._next_turn)
        if self._begun < MOST and not self._waiting:
            self._begun += 1
            return True
        self._waiting.append(beginner)
        return False

    def _next_turn(self) -> None:
        self._begun = min(MOST, len(self._waiting))
        self._armed = bool(self._waiting)
        if self._armed:
            self._loop.call_soon(self._next_turn)
        for _ in range(self._begun):
            self._waiting.popleft().begin()
