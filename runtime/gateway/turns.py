"""How many requests are begun in one turn of the event loop: few, so that a burst keeps nothing else waiting.

A thousand requests that arrive together would be read and parsed in a single turn, for 50 ms and more. The decision
that they cause needs several turns and threads (window, wish and grant are each recorded), and would come only when all
were read.

So when a request has woken a model, way is made for what leads to its start: of a burst nearly nothing is begun until
the replica is starting, for a few milliseconds, and seldom. What trickles in beside it goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from events.units import Instant

MOST: Final = 16
"""Requests begun in a turn: about half a millisecond of work. A turn costs a few microseconds, and what is written in
it leaves together (`runtime.gateway.outbox`), so much smaller ones would cost more than they give."""

TURN: Final = 0.000_25
"""What counts as one turn while nobody waits, in seconds. (To be told of every turn of the loop would cost an idle one
for each request.)"""

WAY_LASTS = 0.02
"""Seconds for which way is made at most. A start command follows its request within 4 ms where nothing else goes on;
the rest is for machines that are busy."""

WAY_RESTS = 0.1
"""Seconds after that until way is made again: models that wake all the time cost others a sixth of the time at most."""

WAY_BEGINS: Final = 4
"""Requests begun meanwhile: whoever comes alone does not notice, a burst does."""


class Beginner(Protocol):
    """A connection that has bytes of a request."""

    def begin(self) -> None:
        """Go on now. Nothing happens when the connection is gone."""


class Turns:
    """Lets connections begin, in the order in which they came. Each waits here at most once: they see to that."""

    __slots__ = ("_armed", "_begun", "_left", "_loop", "_resting", "_since", "_waiting", "_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0
        self._since = 0.0
        """When the present turn began, as far as that was looked at."""
        self._armed = False
        self._waiting: deque[Beginner] = deque()
        self._way: asyncio.TimerHandle | None = None
        """While way is made: what ends it in time."""
        self._left = 0
        """How many more may begin meanwhile."""
        self._resting = False

    def may_begin(self, beginner: Beginner, now: Instant) -> bool:
        """Whether it may go on at once; False: it will be told to, in one of the next turns."""
        if self._way is not None:
            if not self._left:
                self._waiting.append(beginner)
                return False
            self._left -= 1
        if not self._armed and now - self._since > TURN:
            self._since = now
            self._begun = 0
        if self._begun < MOST and not self._waiting:
            self._begun += 1
            return True
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._next_turn)
        self._waiting.append(beginner)
        return False

    def make_way(self) -> None:
        """A request has woken a model: let what leads to its start go first, until `end_way`."""
        if self._way is None and not self._resting:
            self._left = WAY_BEGINS
            self._way = self._loop.call_later(WAY_LASTS, self.end_way)

    def end_way(self) -> None:
        """All go on. Nothing happens when no way is made."""
        if self._way is None:
            return
        self._way.cancel()
        self._way = None
        self._resting = True
        self._loop.call_later(WAY_RESTS, self._rested)
        if self._waiting and not self._armed:
            self._armed = True
            self._loop.call_soon(self._next_turn)

    def _rested(self) -> None:
        self._resting = False

    def _next_turn(self) -> None:
        waiting = self._waiting
        self._begun = 0
        self._armed = bool(waiting) and (self._way is None or self._left > 0)
        if not self._armed:
            return
        self._loop.call_soon(self._next_turn)
        while waiting and self._begun < MOST:
            if self._way is not None:
                if not self._left:
                    break  # who began just now has woken a model
                self._left -= 1
            self._begun += 1
            waiting.popleft().begin()
