"""One fetch of the agent, in a thread of its own: its pace, how it gets on, who waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from enum import Enum

from coldstart.cache.wanting import Got, Progress
from coldstart.core.cache.errors import CacheError
from coldstart.core.cache.transfer import Transfer, Transferred
from events.clock import Clock
from events.units import Seconds


class Yielded(CacheError):
    """A fetch that nobody waits for made room for one that somebody waits for, or is wanted no longer. What was
    verified is kept."""

    remedy = "nothing: it goes on when there is time for it"


class Why(Enum):
    """Who wants it."""

    DEMAND = "demand"
    """A start waits for it."""
    PREWARM = "prewarm"
    """Somebody will probably ask for it."""


class Pace(Progress):
    """Follows a fetch, slows it down, and ends it. Called by the fetch's threads, asked by the event loop."""

    def __init__(self, clock: Clock, limit: float | None) -> None:
        self._clock = clock
        self._awaited = False
        self._limit = limit
        self.held_back = limit is not None
        """Whether it was, ever: then how fast it came says nothing of the network."""
        self._transfer = Transfer()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._over = threading.Event()

    def begins(self, total: int) -> None:
        """See `Progress`."""
        with self._lock:
            self._transfer.begins(total)

    def verified(self, more: int) -> None:
        """See `Progress`. Yielded: it was told to end."""
        with self._lock:
            self._transfer.verified(more, self._clock.now())
            limit = self._limit
        if limit is not None and not self.ended:
            self._changed.wait(more / limit)
        self.check()

    def check(self) -> None:
        """See `Progress`. Yielded: it was told to end."""
        if self.ended:
            raise Yielded("it is not wanted now")

    def pause(self, seconds: Seconds) -> None:
        """See `Progress`."""
        self._over.wait(seconds)
        self.check()

    @property
    def awaited(self) -> bool:
        """See `Progress`."""
        return self._awaited

    def hurry(self) -> None:
        """Somebody waits: no limit any more."""
        self._awaited = True
        self._limit = None
        self._changed.set()

    def end(self) -> None:
        """Stop, at the next chunk or while none comes."""
        self._over.set()
        self._changed.set()

    @property
    def ended(self) -> bool:
        """Whether it was told to stop."""
        return self._over.is_set()

    def seen(self) -> Transferred:
        """As it stands."""
        with self._lock:
            return self._transfer.seen(self._clock.now())


class Flight:
    """A fetch that runs. `done` is on the event loop; its use is held until the last of those who wait has its own."""

    def __init__(self, why: Why, pace: Pace, alone: threading.Lock) -> None:
        self.why = why
        self.pace = pace
        self.alone = alone
        """Held while it fetches: two that fetch the same do it one after the other."""
        self.waiting = 0
        self.made_way: tuple[Flight, ...] = ()
        """Those that were told to end for it."""
        self.over = threading.Event()
        """Its thread has done with it, and holds no room."""
        self.began = False
        """Set by its thread when it is its turn."""
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Got] = self._loop.create_future()

    def run(self, fetch: Callable[[], Got], after: Callable[[], None]) -> None:
        """Begin it. `after` is done in the same thread when nobody waits for it any more, and only if it went well."""
        threading.Thread(target=self._fly, args=(fetch, after), name="weights", daemon=True).start()

    def told(self, what: Callable[[], None]) -> None:
        """Have something told on the event loop, from its thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: the process ends
            self._loop.call_soon_threadsafe(what)

    def _fly(self, fetch: Callable[[], Got], after: Callable[[], None]) -> None:
        got: Got | None = None
        error: BaseException | None = None
        try:
            got = fetch()
        except Exception as caught:  # noqa: BLE001 - told to all who wait
            error = caught
        self.over.set()
        self.told(lambda: self._land(got, error))
        if got is not None and not got.hit:
            after()

    def _land(self, got: Got | None, error: BaseException | None) -> None:
        if got is not None:
            self.done.set_result(got)
        else:
            self.done.set_exception(error or RuntimeError("a fetch ended without an end"))
            self.done.exception()  # whoever waits gets it all the same; nobody may
