"""Demand, measured exactly: integrals of running and waiting requests over time, by model revision, in windows.

Each window is an interval [started_at, ended_at]; the windows of a meter follow each other without gap or overlap while
anything goes on, so their integrals add up to the whole. A window that is sent early (an edge) has the same
`started_at` as the one that ends the interval, which replaces it. A meter without activity is not there at all: idle
models cost nothing. Every method takes constant time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from events.types.requests import COUNTS, Levels, RequestWindow
from events.units import Instant, Seconds
from runtime.core import sketch
from runtime.core.sketch import SketchBuilder
from runtime.ports import Ending, Outcome

INTERVAL = Seconds(1.0)
"""Length of a window while anything runs or waits (design §4), and up to a twentieth more: see `interval_end`."""

GRID = 20
"""Intervals end on a grid of so many instants a second: the windows of ten thousand models ring twenty alarms a second,
not ten thousand."""

AT_ONCE = 256
"""Windows made in one go, about 10 ms: an edge of one model does not wait for the windows of ten thousand others."""

BACKLOG_GROWTH = 1.5
"""An edge window goes out when this many times as many wait as the last window said (design §4: grown by half)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the hold queue says of the requests that wait for the model of a meter."""

    oldest_since: Instant | None = None
    earliest_deadline: Instant | None = None


NOBODY_WAITS = Waiting()
_FINISHED: Final = Ending.FINISHED


class MeterKey(NamedTuple):
    """Whose demand a meter measures."""

    model: str
    uid: str
    revision: int


@dataclass(slots=True)
class Interval:
    """What has happened since `started_at`, as in `RequestWindow`. 5xx count as failures, each try as a start."""

    started_at: Instant
    peak_running: int
    peak_waiting: int
    running_seconds: float = 0.0
    waiting_seconds: float = 0.0
    arrivals: int = 0
    starts: int = 0
    finishes: int = 0
    failures: int = 0
    refusals: int = 0
    abandoned: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    held: SketchBuilder = field(default_factory=SketchBuilder)
    first_byte: SketchBuilder = field(default_factory=SketchBuilder)
    total: SketchBuilder = field(default_factory=SketchBuilder)
    quiet: bool = True


class Meter:
    """The demand for one revision of a model, seen by one gateway, since it was last idle."""

    __slots__ = ("_gateway", "_interval", "_last", "_said_waiting", "key", "running", "untold", "waiting")

    def __init__(self, key: MeterKey, gateway: str, now: Instant) -> None:
        self.key = key
        self._gateway = gateway
        self.running = 0
        self.waiting = 0
        self._last = now
        self.untold = True
        """Whether nothing was sent since the meter woke."""
        self._said_waiting: int | None = None
        """Waiting requests in the window sent last; None: nothing was sent since the meter woke."""
        self._interval = Interval(now, 0, 0)

    def arrive(self, now: Instant) -> None:
        """A request arrived."""
        self._touch(now).arrivals += 1

    def wait(self, now: Instant, more: int = 1) -> None:
        """One more waits, or several."""
        interval = self._touch(now)
        self.waiting += more
        interval.peak_waiting = max(interval.peak_waiting, self.waiting)

    def unwait(self, now: Instant) -> None:
        """One waits no more."""
        self._touch(now)
        assert self.waiting > 0, "more requests left the hold queue than entered it"
        self.waiting -= 1

    def move_waiting(self, successor: Meter, now: Instant) -> None:
        """The requests that wait here wait for another revision from now on."""
        self._touch(now)
        successor.wait(now, self.waiting)
        self.waiting = 0

    def refuse(self, now: Instant) -> None:
        """A request was refused a slot."""
        self._touch(now).refusals += 1

    def abandon(self, now: Instant) -> None:
        """A request was left by its client while it waited."""
        self._touch(now).abandoned += 1

    def start(self, now: Instant, held: float) -> None:
        """One more runs, after `held` seconds in the hold queue."""
        interval = self._touch(now)
        self.running += 1
        interval.peak_running = max(interval.peak_running, self.running)
        interval.starts += 1
        interval.held.add(held)

    def start_at_once(self, now: Instant) -> None:
        """`arrive` and `start` of a request that finds a free slot, in one."""
        interval = self._touch(now)
        interval.arrivals += 1
        interval.starts += 1
        self.running = running = self.running + 1
        interval.peak_running = max(interval.peak_running, running)
        interval.held.add(0.0)

    def finish(self, now: Instant, arrived_at: Instant, outcome: Outcome) -> None:
        """One runs no more. Latencies count from the arrival: as its client saw them."""
        interval = self._touch(now)
        assert self.running > 0, "more leases ended than began"
        self.running -= 1
        ending = outcome.ending
        if ending is _FINISHED:
            if outcome.status < 500:
                interval.finishes += 1
            else:
                interval.failures += 1
            interval.total.add(now - arrived_at)
        elif ending is Ending.CLIENT_LEFT:
            interval.abandoned += 1
        else:
            interval.failures += 1
        interval.tokens_in += outcome.tokens_in
        interval.tokens_out += outcome.tokens_out
        interval.bytes_in += outcome.bytes_in
        interval.bytes_out += outcome.bytes_out
        if outcome.first_byte_at is not None:
            interval.first_byte.add(outcome.first_byte_at - arrived_at)

    @property
    def edge(self) -> bool:
        """Whether what has happened since the last window must be told at once.

        First activity; somebody waits where the last window said nobody did; as many again by half wait.
        """
        if self._said_waiting is None:
            return True
        if self.waiting <= self._said_waiting:
            return False
        return self._said_waiting == 0 or self.waiting >= BACKLOG_GROWTH * self._said_waiting

    @property
    def idle(self) -> bool:
        """Whether nothing at all went on in the interval so far."""
        return self._interval.quiet and not self.running and not self.waiting

    def window(self, now: Instant, waiting: Waiting, *, edge: bool = False) -> RequestWindow:
        """The interval up to now, which goes on. Remembers that it was told."""
        self._pass(now)
        self._said_waiting = self.waiting
        self.untold = False
        seen = self._interval
        levels = peak = Levels(running=self.running, waiting=self.waiting)
        if seen.peak_running != self.running or seen.peak_waiting != self.waiting:
            peak = Levels(running=seen.peak_running, waiting=seen.peak_waiting)
        return RequestWindow(
            model=self.key.model,
            uid=self.key.uid,
            revision=self.key.revision,
            gateway=self._gateway,
            started_at=seen.started_at,
            ended_at=self._last,
            running_seconds=seen.running_seconds,
            waiting_seconds=seen.waiting_seconds,
            now=levels,
            peak=peak,
            arrivals=seen.arrivals,
            starts=seen.starts,
            finishes=seen.finishes,
            failures=seen.failures,
            refusals=seen.refusals,
            abandoned=seen.abandoned,
            tokens_in=seen.tokens_in,
            tokens_out=seen.tokens_out,
            bytes_in=seen.bytes_in,
            bytes_out=seen.bytes_out,
            held=seen.held.sketch(),
            first_byte=seen.first_byte.sketch(),
            total=seen.total.sketch(),
            oldest_waiting_since=waiting.oldest_since if self.waiting else None,
            earliest_deadline=waiting.earliest_deadline if self.waiting else None,
            edge=edge,
        )

    def close(self, now: Instant, waiting: Waiting) -> RequestWindow:
        """End the interval and begin the next one at `now`."""
        window = self.window(now, waiting)
        self._interval = Interval(self._last, self.running, self.waiting)
        return window

    def _touch(self, now: Instant) -> Interval:
        """Something happens now. (`_pass` written out: every request comes here twice.)"""
        interval = self._interval
        passed = now - self._last
        if passed > 0:
            interval.running_seconds += self.running * passed
            if self.waiting:
                interval.waiting_seconds += self.waiting * passed
            self._last = now
        interval.quiet = False
        return interval

    def _pass(self, now: Instant) -> None:
        """Bring the integrals up to now."""
        passed = now - self._last
        if passed > 0:
            interval = self._interval
            interval.running_seconds += self.running * passed
            interval.waiting_seconds += self.waiting * passed
            self._last = now


def interval_end(started_at: Instant) -> Instant:
    """When an interval that begins then ends: after a second, at the next instant of the grid."""
    return Instant(math.ceil((started_at + INTERVAL) * GRID) / GRID)


class Meters:
    """The meters of the models that anything goes on for; no others exist."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._awake: dict[MeterKey, Meter] = {}
        # When each awake meter's interval ends. Whoever begins later ends no earlier, so they stay in order.
        self._ends: deque[tuple[Instant, MeterKey]] = deque()

    def __len__(self) -> int:
        return len(self._awake)

    def get(self, key: MeterKey, now: Instant) -> Meter:
        """The meter of a revision; its first interval begins now if nothing went on."""
        meter = self._awake.get(key)
        if meter is None:
            meter = self._awake[key] = Meter(key, self._gateway, now)
            self._ends.append((interval_end(now), key))
        return meter

    @property
    def tick_at(self) -> Instant | None:
        """When the next interval ends; None while nothing goes on."""
        return self._ends[0][0] if self._ends else None

    def settled(self, key: MeterKey) -> Meter | None:
        """The meter of a revision that has been told of; None: whatever happens must be told at once."""
        meter = self._awake.get(key)
        # With nobody waiting only first activity is an edge: see `Meter.edge`.
        return None if meter is None or meter.waiting or meter.untold else meter

    def __contains__(self, key: MeterKey) -> bool:
        return key in self._awake

    def levels(self, key: MeterKey) -> Levels:
        """What runs and waits now."""
        meter = self._awake.get(key)
        return Levels() if meter is None else Levels(running=meter.running, waiting=meter.waiting)

    def tick(self, now: Instant, waiting: Callable[[MeterKey], Waiting]) -> list[RequestWindow]:
        """End the intervals that are over, `AT_ONCE` at most: the next call ends more.

        An idle one is told too, once, all zeros; then its meter is gone.
        """
        windows: list[RequestWindow] = []
        while self._ends and self._ends[0][0] <= now and len(windows) < AT_ONCE:
            _, key = self._ends.popleft()
            meter = self._awake[key]
            if meter.idle:
                del self._awake[key]
            else:
                self._ends.append((interval_end(now), key))
            windows.append(meter.close(now, waiting(key)))
        return windows


def merged(earlier: RequestWindow, later: RequestWindow) -> RequestWindow:
    """One window in place of two of the same revision, when the earlier one could not be sent.

    Of one interval the later stands alone: it has grown out of the earlier.
    """
    if earlier.started_at == later.started_at:
        return later
    return replace(
        later,
        started_at=earlier.started_at,
        running_seconds=earlier.running_seconds + later.running_seconds,
        waiting_seconds=earlier.waiting_seconds + later.waiting_seconds,
        peak=Levels(
            running=max(earlier.peak.running, later.peak.running),
            waiting=max(earlier.peak.waiting, later.peak.waiting),
        ),
        held=sketch.merged(earlier.held, later.held),
        first_byte=sketch.merged(earlier.first_byte, later.first_byte),
        total=sketch.merged(earlier.total, later.total),
        edge=earlier.edge or later.edge,
        **{name: getattr(earlier, name) + getattr(later, name) for name in COUNTS},
    )
