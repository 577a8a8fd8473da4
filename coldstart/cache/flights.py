"""Single flight: however many ask for the same weights at once, one fetch runs; who leaves does not stop it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from coldstart.cache import holding
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.ports import Source
from events.units import Seconds


@dataclass(slots=True)
class _Flight:
    done: Future[Got] = field(default_factory=Future)
    waiting: int = 0


class Flights:
    """Fetches of one cache, for the threads of one process. One runs at a time, since the folder has one writer."""

    def __init__(self, weights: WeightCache) -> None:
        self._weights = weights
        self._flying: dict[Wanted, _Flight] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def fetch(self, wanted: Wanted, source: Source, patience: Seconds) -> Got:
        """Join the fetch of these weights, or begin it. Each caller gets a use of its own.

        Raises what the fetch raised; TimeoutError after `patience`, and the fetch goes on.
        """
        with self._lock:
            flight = self._flying.get(wanted)
            if flight is None:
                flight = self._flying[wanted] = _Flight()
                threading.Thread(target=self._fly, args=(wanted, source, flight), name="weights", daemon=True).start()
            flight.waiting += 1
        try:
            got = flight.done.result(patience)
            use = holding.take_use(self._weights.layout, got.manifest.snapshot)
            assert use is not None, "the flight holds a use until all who wait have theirs"
            return replace(got, use=use)
        finally:
            with self._lock:
                flight.waiting -= 1
                self._land(wanted, flight)

    def _fly(self, wanted: Wanted, source: Source, flight: _Flight) -> None:
        try:
            with self._turn:
                flight.done.set_result(self._weights.fetch(wanted, source, Progress()))
                self._weights.settle(wanted)
        except Exception as error:  # noqa: BLE001 - told to all who wait; a failed sync is the next one's to do
            if not flight.done.done():
                flight.done.set_exception(error)
        with self._lock:
            self._land(wanted, flight)

    def _land(self, wanted: Wanted, flight: _Flight) -> None:
        """The last of those who wait, or the flight itself where nobody does, ends its use. Called under the lock."""
        if flight.waiting or not flight.done.done() or self._flying.get(wanted) is not flight:
            return
        del self._flying[wanted]
        if flight.done.exception() is None:
            flight.done.result().use.end()
