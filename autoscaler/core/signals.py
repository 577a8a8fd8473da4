"""Numbers from outside: what others measured, and what others asked for. Bounded, and each with an end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.core.floors import LASTS_MOST
from autoscaler.core.lag import LagNeed, need
from autoscaler.core.model import LagSeen, SignalSeen
from autoscaler.core.policy import ScalingPolicy, SignalPolicy
from events.types.metrics import LagMeasured, QueryMeasured
from events.units import Instant, Seconds

SIGNALS_MOST = 16
"""Signals kept a model; the one that runs out first makes room."""

BACKLOG_VALID = Seconds(60.0)
"""A measured backlog counts for this long, as `signal.measured` does by default."""

NEED_MOST = 1_000_000.0
"""Replicas that a signal may ask for: what is above is taken for a mistake of its sender."""


RECENT_MOST = 32
"""Steps kept of what a signal needed lately; more are merged into the higher one."""

GAIN = 0.25
"""How much a new measurement moves the learned rate of a replica: about the last four count. (An exponentially weighted
average; commits come in bursts, so a single measurement says little.)"""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured. `target` None: the declaration's, else the model's own. `lag`: it is a group's lag."""

    value: float
    target: float | None
    valid_for: Seconds
    lag: LagMeasured | None = None


@dataclass(frozen=True, slots=True)
class Needed:
    """What all signals say at one instant.

    `replicas` that the valid ones need (the largest need counts), `recent`: the most that was needed in the stable
    window; how many have run out or were never told; when this changes; and each signal by itself.
    """

    replicas: float = 0.0
    recent: float = 0.0
    stale: int = 0
    changes_at: Instant | None = None
    seen: tuple[SignalSeen, ...] = ()

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The names of those that are not known, and of which it is known why."""
        return tuple([one.name for one in self.seen if one.need is None and one.error])


NO_SIGNALS = Needed()


class _Kept:
    """The newest reading of a signal, what it needed lately, and the rate of a replica as far as it is known."""

    __slots__ = ("at", "error", "need", "per_replica", "reading", "ready", "recent", "until")

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self.error = ""
        self.at = self.until = Instant(0.0)
        self.need = LagNeed(replicas=0.0, wanted=0.0)
        self.per_replica: float | None = None
        self.ready = 0
        self.recent: list[tuple[Instant, float]] = []

    def take(self, reading: Reading, at: Instant) -> None:
        """The newest reading."""
        self.reading, self.at = reading, at
        self.until = Instant(at + min(reading.valid_for, LASTS_MOST))

    def learn(self, measured: LagMeasured, ready: int) -> None:
        """The rate of a replica, while as many as before were ready and had work all the time."""
        was = self.reading.lag if self.reading is not None else None
        if ready and ready == self.ready and measured.consumed and measured.lag and was is not None and was.lag:
            rate = measured.consumed / ready
            self.per_replica = rate if self.per_replica is None else self.per_replica + GAIN * (rate - self.per_replica)
        self.ready = ready

    def remember(self, need: float, at: Instant, span: Seconds) -> None:
        """What was needed, for one span: a staircase down to the present."""
        recent = [one for one in self.recent if one[0] > at - span and one[1] > need]
        if len(recent) >= RECENT_MOST:
            recent[-2:] = [(recent[-1][0], recent[-2][1])]
        self.recent = [*recent, (at, need)]

    def most(self, now: Instant, span: Seconds) -> float:
        """The most that was needed in the span before `now`, and is now."""
        return max([self.need.replicas, *(need for at, need in self.recent if at > now - span)])


class Signals:
    """The newest value of each named signal of a model.

    A declared signal that has run out, or was never told, is stale until it is told: nothing is taken away meanwhile.
    Another one that has run out is stale for as long again as it was valid, then it is forgotten: its sender was taken
    down.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def measured(self, name: str, reading: Reading, at: Instant, policy: ScalingPolicy) -> float:
        """The newest reading of a signal. Returns the replicas that it needs."""
        kept = self._keep(name, policy)
        kept.take(reading, at)
        return self._weigh(name, kept, at, policy)

    def told(
        self, signal: SignalPolicy, total: float | str, valid: Seconds, at: Instant, policy: ScalingPolicy
    ) -> float:
        """What the model's engines told, or why it is not known. Returns the replicas that it needs."""
        kept = self._keep(signal.name, policy)
        kept.error = total if isinstance(total, str) else ""
        if isinstance(total, str):
            return 0.0
        kept.take(Reading(total, None, valid), at)
        return self._weigh(signal.name, kept, at, policy)

    def forget(self, name: str) -> None:
        """Nobody is there who could tell it."""
        self._kept.pop(name, None)

    def lag(self, measured: LagMeasured, at: Instant, policy: ScalingPolicy, ready: int) -> float:
        """The newest lag of a group, while `ready` replicas were. Returns the replicas that it needs."""
        if measured.lag is None and _signal(measured.name, policy) is None:
            return 0.0
        kept = self._keep(measured.name, policy)
        if measured.lag is None:
            if kept.reading is None:
                kept.take(Reading(0.0, None, Seconds(measured.valid_for), measured), Instant(0.0))
            elif kept.reading.lag is not None:
                kept.reading = replace(kept.reading, lag=replace(kept.reading.lag, error=measured.error))
            return 0.0
        kept.learn(measured, ready)
        kept.take(Reading(measured.lag, None, Seconds(measured.valid_for), measured), at)
        return self._weigh(measured.name, kept, at, policy)

    def query(self, measured: QueryMeasured, at: Instant, policy: ScalingPolicy) -> float:
        """What a metrics server said. Its numbers are as old as they are late. Returns the replicas that they need."""
        if _signal(measured.name, policy) is None:
            return 0.0
        kept = self._keep(measured.name, policy)
        kept.error = measured.error
        if measured.value is None:
            return 0.0
        kept.take(Reading(measured.value, None, Seconds(measured.valid_for)), Instant(at - measured.delay))
        return self._weigh(measured.name, kept, at, policy)

    def needed(self, now: Instant, policy: ScalingPolicy) -> Needed:
        """What the signals need at `now`."""
        declared = {signal.name for signal in policy.signals}
        needed = recent = 0.0
        stale, seen = 0, []
        changes_at: Instant | None = None
        for name in dict.fromkeys((*(signal.name for signal in policy.signals), *self._kept)):
            kept = self._kept.get(name)
            if kept is None or kept.reading is None or not kept.at:
                if name not in declared:
                    del self._kept[name]
                    continue
                stale += 1
                seen.append(SignalSeen(name=name, error=_error(kept)))
                continue
            end, valid = kept.until, now < kept.until
            if not valid and name not in declared:
                end = Instant(end + kept.reading.valid_for)
                if now >= end:
                    del self._kept[name]
                    continue
            self._weigh(name, kept, None, policy)
            partly = kept.reading.lag is not None and kept.reading.lag.unknown > 0
            stale += not valid or partly
            if valid:
                needed = max(needed, kept.need.replicas)
            recent = max(recent, kept.most(now, policy.stable_window))
            seen.append(_seen(name, kept, now, policy))
            if now < end:
                changes_at = end if changes_at is None else min(changes_at, end)
        return Needed(needed, max(recent, needed), stale, changes_at, tuple(seen))

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, name: str, policy: ScalingPolicy) -> _Kept:
        kept = self._kept.get(name)
        if kept is None:
            if len(self._kept) >= SIGNALS_MOST:
                declared = {signal.name for signal in policy.signals}
                del self._kept[min(self._kept, key=lambda one: (one in declared, self._kept[one].until))]
            kept = self._kept[name] = _Kept()
        return kept

    def _weigh(self, name: str, kept: _Kept, at: Instant | None, policy: ScalingPolicy) -> float:
        """Work out what a signal needs; `at`: it was measured just then."""
        assert kept.reading is not None
        kept.need = _need(name, kept.reading, kept.per_replica, policy)
        if at is not None:
            kept.remember(kept.need.replicas, at, policy.stable_window)
        return kept.need.replicas


def _signal(name: str, policy: ScalingPolicy) -> SignalPolicy | None:
    return next((signal for signal in policy.signals if signal.name == name), None)


def _target(name: str, reading: Reading, policy: ScalingPolicy) -> float:
    signal = _signal(name, policy)
    if signal is not None and signal.target is not None:
        return signal.target
    return reading.target or policy.target


def _need(name: str, reading: Reading, per_replica: float | None, policy: ScalingPolicy) -> LagNeed:
    signal = _signal(name, policy)
    if signal is not None and signal.lag is not None and reading.lag is not None:
        found = need(reading.lag, signal.lag, signal.activation, per_replica)
        return replace(found, replicas=min(NEED_MOST, found.replicas), wanted=min(NEED_MOST, found.wanted))
    if signal is not None and reading.value <= signal.activation:
        return LagNeed(replicas=0.0, wanted=0.0)
    replicas = min(NEED_MOST, reading.value / _target(name, reading, policy))
    return LagNeed(replicas=replicas, wanted=replicas)


def _seen(name: str, kept: _Kept, now: Instant, policy: ScalingPolicy) -> SignalSeen:
    assert kept.reading is not None
    signal, need_ = _signal(name, policy), kept.need
    lag = kept.reading.lag
    return SignalSeen(
        name=name,
        need=need_.replicas if now < kept.until else None,
        value=kept.reading.value,
        target=signal.lag.target if signal is not None and signal.lag else _target(name, kept.reading, policy),
        age=max(0.0, now - kept.at),
        error=_error(kept),
        lag=None if lag is None else LagSeen(
            standing=lag.standing, partitions=lag.partitions, with_lag=lag.with_lag, unknown=lag.unknown,
            produced=lag.produced, consumed=lag.consumed, per_replica=kept.per_replica,
            wanted=need_.wanted, drained=need_.drained, most=need_.most,
        ),
    )  # fmt: skip


def _error(kept: _Kept | None) -> str:
    if kept is None or kept.error:
        return "" if kept is None else kept.error
    return kept.reading.lag.error if kept.reading is not None and kept.reading.lag else ""
