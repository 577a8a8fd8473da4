"""Measures the lags that the models declare, in turn, and tells them as events. One process measures a model: the one
whose autoscaler decides it.

A look runs elsewhere (`LagReader`); here are its rounds: each lag as often as its declaration says, few at a time for
one cluster, so that brokers that do not answer hold up nobody but their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from autoscaler.core.lag import LagWatch, valid_for
from autoscaler.core.policy import LagPolicy, ScalingPolicy
from autoscaler.ports import LagReader, LagUnknown
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.types.metrics import LagMeasured
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Looks in flight at one cluster: its client works them off one after the other, so more only wait there."""

LOOK_MOST: Final = Seconds(15.0)
"""The longest that a look may take; the reader's own bound is shorter, this one is for a reader that is stuck."""

ROUND: Final = Seconds(0.5)
"""How often it is looked whether a lag is due. The shortest `every` is a second."""

Owned = Callable[[], Iterable[tuple[str, ScalingPolicy]]]
"""The models that are decided here, with their policies."""

Key = tuple[str, str]
"""A model and the name of one of its signals."""

Cluster = tuple[tuple[str, ...], str]


@dataclass(slots=True)
class _Measured:
    """One lag: what it is, what was seen of it, when it is due, whether a look is under way."""

    policy: LagPolicy
    due: Instant
    watch: LagWatch = field(default_factory=LagWatch)
    looking: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class MeasuringCounts:
    """Since the start, but `lags`: how many are measured now."""

    lags: int = 0
    looks: int = 0
    failures: int = 0
    untold: int = 0


class Measuring:
    """Run `run`. `offer` takes an event without waiting; False: it was dropped."""

    def __init__(
        self, owned: Owned, reader: LagReader, offer: Callable[[AnyEnvelope], bool], clock: Clock, writer: EventWriter
    ) -> None:
        self._owned, self._reader, self._offer, self._clock, self._writer = owned, reader, offer, clock, writer
        self._lags: dict[Key, _Measured] = {}
        self._busy: Counter[Cluster] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = self._failures = self._untold = 0

    def counts(self) -> MeasuringCounts:
        """What was done."""
        return MeasuringCounts(len(self._lags), self._looks, self._failures, self._untold)

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
            self._reader.close()

    def _know(self, now: Instant) -> None:
        """Which lags there are: new ones are due at once, other ones begin anew, and what is gone is forgotten."""
        declared = {
            (model, signal.name): signal.lag
            for model, policy in self._owned()
            for signal in policy.signals
            if signal.lag is not None
        }
        for key in [key for key in self._lags if self._lags[key].policy != declared.get(key)]:
            del self._lags[key]
        for key, lag in declared.items():
            if key not in self._lags:
                self._lags[key] = _Measured(lag, now)

    def _begin(self, now: Instant) -> None:
        """Start the looks that are due, those that have waited longest first."""
        due = [(one.due, key) for key, one in self._lags.items() if one.due <= now and not one.looking]
        for _, key in sorted(due):
            one = self._lags[key]
            cluster = (one.policy.servers, one.policy.cluster)
            if self._busy[cluster] < AT_ONCE:
                self._busy[cluster] += 1
                one.looking = True
                task = asyncio.create_task(self._measure(key, one), name=f"lag {key[1]}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _measure(self, key: Key, one: _Measured) -> None:
        model, name = key
        begun = self._clock.now()
        try:
            async with asyncio.timeout(LOOK_MOST):
                told = one.watch.measure(model, name, one.policy, await self._reader.look(one.policy))
            one.error = ""
        except (LagUnknown, TimeoutError) as error:
            said = str(error) or f"no answer within {LOOK_MOST:.0f} s"
            told = LagMeasured(model=model, name=name, error=said, valid_for=valid_for(one.policy))
            self._failed(key, one, said)
        finally:
            one.looking = False
            one.due = Instant(begun + one.policy.every)
            cluster = (one.policy.servers, one.policy.cluster)
            self._busy[cluster] -= 1
            if not self._busy[cluster]:
                del self._busy[cluster]
        self._looks += 1
        if self._lags.get(key) is one and not self._offer(self._writer.envelope(told)):
            self._untold += 1

    def _failed(self, key: Key, one: _Measured, said: str) -> None:
        """Count, and say it once for as long as it lasts."""
        self._failures += 1
        if one.error != said:
            logger.warning("signal %s of %s cannot be measured: %s", key[1], key[0], said)
        one.error = said
