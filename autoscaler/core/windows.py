"""A model's demand: `request.window`s of all gateways folded into levels now and averages over time.

Rules of this file. Windows of several gateways add. A window with the same (source, revision, start) replaces the
earlier one. Its place in time is the log's append time, so that a live run and a replay agree; lengths come from the
gateway's own clock, and no source tells of one instant twice. Between two windows a gateway's last level stands, for at
most `SILENCE` of what was read of the log; after that its requests are unknown (they count in no level, and every
average is None), until it speaks or `Gateways` proves that they are over. What is idle keeps nothing.
"""

from __future__ import annotations

from math import exp, inf

from autoscaler.core.foreign import Foreign
from autoscaler.core.gateways import World
from autoscaler.core.model import Demand
from autoscaler.core.rings import Ring
from autoscaler.core.signals import Needed
from autoscaler.core.sources import SILENCE, WINDOW_MOST, Levels, Source, integrals
from autoscaler.core.turnover import LEAST, Turnover
from events.types.requests import RequestWindow
from events.units import Instant, Seconds

STABLE_CELLS, PANIC_CELLS = 60, 12
"""Cells of the two rings: at the default windows, 1 s (Knative's buckets) and 0.5 s each."""

SOURCES_MOST = 256
"""(Gateway, revision) pairs kept a model; the one that was heard least lately makes room."""

RESET = Seconds(5.0)
"""A window that ends this much before its predecessor comes from a clock that was set back, not from late delivery."""

REMEMBERED = 8.0
"""How long a request runs is known from those that have ended lately, and as if so many had ended in the time that is
remembered: one long answer is not their mean. Chosen."""

DUST = 1e-9
"""Sums below this are rounding."""


class Windows:
    """Folds the demand of one model. Give it the append time of every event; `measure` at any later instant."""

    __slots__ = (
        "_arrivals", "_came", "_faded_at", "_finishes", "_foreign", "_foreign_at", "_hole", "_panic", "_panic_span",
        "_running_seconds", "_sources", "_stable", "_stable_span", "_turnover", "last_active_at", "level",
    )  # fmt: skip

    def __init__(self, stable: Seconds, panic: Seconds) -> None:
        self._stable_span, self._panic_span = stable, panic
        self._stable: Ring | None = None
        self._panic: Ring | None = None
        self._came: Ring | None = None
        """Arrivals, in the cells of the stable window."""
        self._turnover: Turnover | None = None
        """Of a model that had enough requests at a time."""
        self._sources: dict[tuple[str, int], Source] = {}
        self._foreign: Foreign | None = None
        self._foreign_at = Instant(0.0)
        self._arrivals = self._finishes = self._running_seconds = 0.0
        self._faded_at = Instant(0.0)
        self._hole: tuple[float, float] | None = None
        self.last_active_at: Instant | None = None
        self.level = 0
        """Requests that run and wait now."""

    def resize(self, stable: Seconds, panic: Seconds, at: Instant) -> None:
        """The model's windows have another length from `at` on: the levels stay, the averages must be measured anew."""
        if (stable, panic) != (self._stable_span, self._panic_span):
            self._stable_span, self._panic_span = stable, panic
            if self._stable is not None:
                self._hole = (at - stable, at)
            self._stable = self._panic = self._came = self._turnover = None

    def window(self, source: str, window: RequestWindow, at: Instant, world: World) -> None:
        """Fold a window that was appended at `at`."""
        if not 0.0 <= window.ended_at - window.started_at <= WINDOW_MOST:
            return
        key = (source, window.revision)
        was = self._sources.get(key)
        if was is None:
            was = self._enter(key, window, at)
        elif window.ended_at < was.ended_at or at < was.at:
            if was.ended_at - window.ended_at < RESET or at < was.at:
                return
            self.level -= self._sources.pop(key).level
            was = self._enter(key, window, at)
        self._account(was, window, at, world)
        self.level += was.settle(window, at)

    def arrived(self, request: str, at: Instant) -> None:
        """A foreign gateway saw a request arrive."""
        arrived = self._pass_foreign(at).arrive(request, at)
        self.level += arrived
        self._arrivals += arrived
        self._come(at, at, arrived)
        self._turn(at, at, (0.0, arrived, 0))
        self._active(at)

    def finished(self, request: str, at: Instant) -> None:
        """A foreign gateway saw a request finish."""
        finished = self._pass_foreign(at).finish(request, at)
        if finished:
            self.level -= 1
            self._finishes += 1
            self._turn(at, at, (0.0, 0, 1))
            self._active(at)

    def measure(self, now: Instant, world: World, signals: Needed, remembered: float | None = None) -> Demand:
        """Demand at `now`, with what the signals need. Averages are None unless all of their window is known.
        `remembered`: how long a request ran before."""
        if self._foreign is not None:
            self._pass_foreign(now)
        levels = self._levels(now, world)
        stable, panic = levels.stable, levels.panic
        if self._stable is not None and self._panic is not None:
            stable += self._stable.total(now)
            panic += self._panic.total(now)
        since = inf if world.followed_since is None or levels.silent else world.followed_since
        running = levels.running + (len(self._foreign) if self._foreign else 0)
        rate, seconds = self._rates(now, remembered, running)
        if seconds is not None and self._turnover is not None and levels.waiting and not levels.silent:
            seconds = self._turnover.at_least(seconds, running, now)
        coverage = 1.0 if self._hole is None else self._coverage(now)
        demand = Demand(
            running=running,
            waiting=levels.waiting,
            stable=stable / self._stable_span if coverage == 1.0 and since <= now - self._stable_span else None,
            panic=panic / self._panic_span if self._whole(now - self._panic_span, since) else None,
            oldest_waiting=levels.oldest,
            earliest_deadline=levels.deadline,
            last_active_at=self.last_active_at,
            arrivals_per_second=rate,
            seconds_per_request=seconds,
            finished=self._finishes,
            lately=None if seconds is None else self._lately(now, seconds, since),
            silent=levels.silent,
            age=levels.age,
            coverage=coverage,
            signal=signals.replicas,
            signal_recent=signals.recent,
            stale_signals=signals.stale,
            changes_at=signals.changes_at,
        )
        if not self.level and stable < DUST:
            self._free()
        return demand

    # -- folding

    def _enter(self, key: tuple[str, int], window: RequestWindow, at: Instant) -> Source:
        if len(self._sources) >= SOURCES_MOST:
            least = min(self._sources, key=lambda one: self._sources[one].at)
            self.level -= self._sources.pop(least).level
        made = self._sources[key] = Source(window, at)
        return made

    def _account(self, was: Source, window: RequestWindow, at: Instant, world: World) -> None:
        """Add to the rings what this window tells beyond the source's last one."""
        served, integral = integrals(window)
        arrivals, starts, finishes = window.arrivals, window.starts, window.finishes + window.failures
        begin, bridged = window.started_at, 0.0
        if window.started_at == was.started_at:
            integral, served = integral - was.integral, served - was.running_seconds
            arrivals, starts, finishes = arrivals - was.arrivals, starts - was.starts, finishes - was.finishes
            begin = was.ended_at
        elif window.started_at < was.ended_at:
            part = (window.ended_at - was.ended_at) / (window.ended_at - window.started_at)
            integral, served = integral * part, served * part
            begin = was.ended_at
        elif was.level:
            bridged = self._bridge(was, window, at, world)
        stretches = was.stretches(at, window.ended_at - begin, bridged)
        if integral > 0.0:
            for start, end, part in stretches:
                self._add(start, end, integral * part)
        if integral > 0.0 or arrivals > 0 or window.now.running or window.now.waiting:
            self._active(at)
        self._fade(at)
        if arrivals > 0:
            self._arrivals += arrivals
            for start, end, part in stretches:
                self._come(start, end, arrivals * part)
        self._finishes += max(0, finishes)
        self._running_seconds += max(0.0, served)
        for start, end, part in stretches:
            self._turn(start, end, (served * part, starts * part, finishes * part))

    def _bridge(self, was: Source, window: RequestWindow, at: Instant, world: World) -> float:
        """Windows are missing between the last one and this: fill a short gap with the last level, note a long one.
        Returns its seconds."""
        start = at - (window.ended_at - window.started_at)
        gap = min(window.started_at - was.ended_at, start - was.at)
        if gap <= 0.0:
            return 0.0
        if gap <= SILENCE:
            self._add(start - gap, start, gap * was.level)
            self._active(Instant(start))
        elif world.gateways.over(was.gateway, was.at, at) is None:
            begin = start - gap if self._hole is None else min(self._hole[0], start - gap)
            self._hole = (begin, start)
        return gap

    def _add(self, start: float, end: float, amount: float) -> None:
        if self._stable is None or self._panic is None:
            self._stable = Ring(self._stable_span, STABLE_CELLS)
            self._panic = Ring(self._panic_span, PANIC_CELLS)
        self._stable.add(start, end, amount)
        self._panic.add(start, end, amount)

    def _come(self, start: float, end: float, arrivals: float) -> None:
        if self._came is None:
            self._came = Ring(self._stable_span, STABLE_CELLS)
        self._came.add(start, end, arrivals)

    def _turn(self, start: float, end: float, passed: tuple[float, float, float]) -> None:
        """Request-seconds that ran, requests that began and that ended."""
        if self._turnover is None:
            if self.level < LEAST:
                return
            self._turnover = Turnover(self._stable_span, STABLE_CELLS)
        self._turnover.add(start, end, *passed)

    def _active(self, at: Instant) -> None:
        if self.last_active_at is None or at > self.last_active_at:
            self.last_active_at = at

    def _pass_foreign(self, now: Instant) -> Foreign:
        """Bring the integral of foreign requests up to now."""
        if self._foreign is None:
            self._foreign = Foreign()
        foreign = self._foreign
        before = len(foreign)
        self._fade(now)
        if before and now > self._foreign_at:
            served = before * (now - self._foreign_at)
            self._add(self._foreign_at, now, served)
            self._running_seconds += served
            self._turn(self._foreign_at, now, (served, 0, 0))
            self._active(now)
        self._foreign_at = max(now, self._foreign_at)
        foreign.expire(now)
        self.level -= before - len(foreign)
        return foreign

    # -- measuring

    def _levels(self, now: Instant, world: World) -> Levels:
        levels, behind = Levels(self._stable_span, self._panic_span), world.behind.by(now)
        ended: list[tuple[str, int]] | None = None
        for key, source in self._sources.items():
            if not source.level:
                continue
            if now - source.at > SILENCE + behind:
                over = world.gateways.over(source.gateway, source.at, now)
                if over is not None:
                    ended = [key] if ended is None else [*ended, key]
                    self._active(over)
                    continue
            levels.take(source, now, behind)
        if ended is not None:
            for key in ended:
                self.level -= self._sources.pop(key).level
        if levels.running or levels.waiting:
            self._active(now)
        return levels

    def _rates(self, now: Instant, remembered: float | None, running: int) -> tuple[float, float | None]:
        """Arrivals a second and seconds a request, over about the stable window.

        The first of a burst to end are not its mean. Of those that run it is not known when they end: now at the
        earliest, never at the latest. What is remembered stands between those two; without it nothing is said before
        half as many have ended as run.
        """
        if not self._arrivals and not self._finishes:
            return 0.0, remembered
        self._fade(now)
        rate, seconds, ended = self._arrivals / self._stable_span, self._running_seconds, self._finishes
        if remembered is None:
            return rate, seconds / ended if ended > max(0.5, 0.5 * running) else None
        seconds, ended = seconds + REMEMBERED * remembered, ended + REMEMBERED
        return rate, min(max(remembered, seconds / (ended + running)), seconds / ended)

    def _lately(self, now: Instant, seconds: float, since: float) -> float | None:
        """Arrivals of the last `seconds`; of more than the stable window at its rate. None: not all are known."""
        begin = now - min(seconds, self._stable_span)
        if not self._whole(begin, since):
            return None
        if self._came is None:
            return 0.0
        return self._came.since(begin, now) * max(1.0, seconds / self._stable_span)

    def _fade(self, now: Instant) -> None:
        """Counts fade with the stable window as their time constant."""
        if now > self._faded_at:
            keep = exp(-(now - self._faded_at) / self._stable_span)
            self._arrivals, self._finishes = self._arrivals * keep, self._finishes * keep
            self._running_seconds *= keep
            self._faded_at = now

    def _whole(self, begin: float, since: float) -> bool:
        """Whether all demand after `begin` is known, as all is known `since`, but for the hole."""
        return since <= begin and (self._hole is None or self._hole[1] <= begin)

    def _coverage(self, now: Instant) -> float:
        if self._hole is None:
            return 1.0
        begin = max(self._hole[0], now - self._stable_span)
        if self._hole[1] <= begin:
            self._hole = None
            return 1.0
        return 1.0 - (self._hole[1] - begin) / self._stable_span

    def _free(self) -> None:
        """Idle for a whole stable window: keep nothing but when it was last active."""
        self._sources.clear()
        self._stable = self._panic = self._came = self._turnover = self._hole = None
        if self._foreign is not None and not self._foreign.waits:
            self._foreign = None
        self._arrivals = self._finishes = self._running_seconds = 0.0
