"""Follows what a fetch is at, in whichever thread: for its report, and for how many connections are of use."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from coldstart.core.cache.busy import Busy, Stage
from events.clock import Clock
from events.types.caches import FetchTimes


class Watch:
    """The stages of a fetch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = Busy(clock.now())

    @contextlib.contextmanager
    def at(self, stage: Stage) -> Iterator[None]:
        """While it is at this."""
        with self._lock:
            self._busy.began(stage, self._clock.now())
        try:
            yield
        finally:
            with self._lock:
                self._busy.ended(stage, self._clock.now())

    def times(self) -> FetchTimes:
        """Now that all is usable."""
        with self._lock:
            return self._busy.times(self._clock.now())
