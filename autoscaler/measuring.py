"""Measures what the models declare, in turn, and tells it as events. One process measures a model: the one whose
autoscaler decides it.

A look runs elsewhere (`autoscaler.gauges`); here are its rounds: each number as often as its declaration says, few at a
time in one place, so that servers that do not answer hold up nobody but their own.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from autoscaler.core.policy import ScalingPolicy, SignalPolicy
from autoscaler.gauges import Gauge, Readers
from autoscaler.ports import Unmeasured
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Looks in flight at one place: a client of Kafka works them off one after the other, so more only wait there."""

LOOK_MOST: Final = Seconds(15.0)
"""The longest that a look may take; the reader's own bound is shorter, this one is for a reader that is stuck."""

ROUND: Final = Seconds(0.5)
"""How often it is looked whether a number is due. The shortest `every` is a second."""

TIMES: Final = re.compile(r"\d+(\.\d+)? ?(ms|s|secs?|seconds?)\b")
"""In an error's words: how long was waited. What differs in these alone is the same error."""

Owned = Callable[[], Iterable[tuple[str, ScalingPolicy]]]
"""The models that are decided here, with their policies."""

Key = tuple[str, str]
"""A model and the name of one of its signals."""


@dataclass(slots=True)
class _Measured:
    """One number: its declaration, when it is due, whether a look is under way."""

    policy: SignalPolicy
    gauge: Gauge
    due: Instant
    looking: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class MeasuringCounts:
    """Since the start, but `measured`: how many numbers are measured now."""

    measured: int = 0
    looks: int = 0
    failures: int = 0
    untold: int = 0


class Measuring:
    """Run `run`. `offer` takes an event without waiting; False: it was dropped."""

    def __init__(
        self, owned: Owned, readers: Readers, offer: Callable[[AnyEnvelope], bool], clock: Clock, writer: EventWriter
    ) -> None:
        self._owned, self._readers, self._offer, self._clock, self._writer = owned, readers, offer, clock, writer
        self._gauged: dict[Key, _Measured] = {}
        self._busy: Counter[Hashable] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = self._failures = self._untold = 0

    def counts(self) -> MeasuringCounts:
        """What was done."""
        return MeasuringCounts(len(self._gauged), self._looks, self._failures, self._untold)

    async def run(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                now = self._clock.now()
                self._know(now)
                self._begin(now)
                await self._clock.sleep_until(Instant(now + ROUND))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._readers.close()

    def _know(self, now: Instant) -> None:
        """Which numbers there are: new ones are due at once, other ones begin anew, and what is gone is forgotten."""
        declared = {
            (model, signal.name): signal
            for model, policy in self._owned()
            for signal in policy.signals
            if signal.lag is not None or signal.query is not None
        }
        for key in [key for key in self._gauged if self._gauged[key].policy != declared.get(key)]:
            del self._gauged[key]
        for key, signal in declared.items():
            if key not in self._gauged and (gauge := self._readers.gauge(key[0], signal)) is not None:
                self._gauged[key] = _Measured(signal, gauge, now)

    def _begin(self, now: Instant) -> None:
        """Start the looks that are due, those that have waited longest first."""
        due = [(one.due, key) for key, one in self._gauged.items() if one.due <= now and not one.looking]
        for _, key in sorted(due):
            one = self._gauged[key]
            if self._busy[one.gauge.place] < AT_ONCE:
                self._busy[one.gauge.place] += 1
                one.looking = True
                task = asyncio.create_task(self._measure(key, one), name=f"signal {key[1]}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _measure(self, key: Key, one: _Measured) -> None:
        begun, place = self._clock.now(), one.gauge.place
        try:
            async with asyncio.timeout(LOOK_MOST):
                told = await one.gauge.measure()
            one.error = ""
        except Exception as error:  # noqa: BLE001 - a reader's bug must not leave the number without a word
            told = one.gauge.failed(self._failed(key, one, error))
        finally:
            one.looking = False
            one.due = Instant(begun + one.gauge.every)
            self._busy[place] -= 1
            if not self._busy[place]:
                del self._busy[place]
        self._looks += 1
        if self._gauged.get(key) is one and not self._offer(self._writer.envelope(told)):
            self._untold += 1

    def _failed(self, key: Key, one: _Measured, error: Exception) -> str:
        """Count, and say it once for as long as it lasts; what is no word of the reader's own with its place."""
        known = isinstance(error, Unmeasured | TimeoutError)
        said = str(error) or f"no answer within {LOOK_MOST:.0f} s" if known else f"{type(error).__name__}: {error}"
        self._failures += 1
        if TIMES.sub("", one.error) != TIMES.sub("", said):
            shown = None if known else error
            logger.warning("signal %s of %s cannot be measured: %s", key[1], key[0], said, exc_info=shown)
        one.error = said
        return said
