"""Lag of a consumer group: how many records it is behind, and how many replicas that needs. Pure arithmetic.

The cases are KEDA's (its Kafka scaler), with four differences. The cap is a cap of replicas, computed in whole
partitions, not of the number (KEDA's integer division lets one replica too many through). History that the brokers have
deleted is no lag. A partition counts as standing still after a time, not after two looks. And lag may be sized as time
to drain: (lag ÷ time + records that come a second) ÷ records that a replica does a second, which is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from autoscaler.core.policy import LagPolicy
from events.kinds import value
from events.types.metrics import LagMeasured
from events.units import Instant

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

TOLERANCE = 1e-9
"""Rounding of quotients: 30 records at 10 a replica are 3 replicas, not 4."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """What the brokers say of a partition: the oldest offset there is, the one after the newest, and the group's.

    `first`, `end` None: nothing was told. `committed` None: the group has committed nothing there.
    """

    first: int | None
    end: int | None
    committed: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """All partitions of a lag at one instant."""

    at: Instant
    offsets: Mapping[Place, Offsets]


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where a partition's committed offset is, and since when."""

    committed: int | None
    since: Instant


def lag_of(offsets: Offsets, policy: LagPolicy) -> int:
    """Records of one partition that the group has not committed. What the brokers have deleted does not count."""
    if offsets.end is None:
        return 0
    first = min(offsets.first or 0, offsets.end)
    if offsets.committed is None or offsets.committed < 0:
        if policy.no_offset_is_zero:
            return 0
        return offsets.end - first if policy.from_earliest else 1
    return max(0, offsets.end - max(offsets.committed, first))


class LagWatch:
    """Turns looks at one group into measurements; remembers the last look, so that there are rates."""

    __slots__ = ("_last", "_stands")

    def __init__(self) -> None:
        self._last: Look | None = None
        self._stands: dict[Place, _Stand] = {}

    def measure(self, model: str, name: str, policy: LagPolicy, look: Look) -> LagMeasured:
        """What a look says, beside the one before it."""
        last, self._last = self._last, look
        self._stands = {place: self._stand(place, one, look.at) for place, one in look.offsets.items()}
        standing = counted = with_lag = 0
        for place, one in look.offsets.items():
            lag = lag_of(one, policy)
            standing += lag
            if lag and not self._excluded(place, policy, look.at):
                counted += lag
                with_lag += 1
        produced, consumed = _rates(last, look)
        return LagMeasured(
            model=model, name=name, lag=counted, standing=standing, partitions=len(look.offsets), with_lag=with_lag,
            unknown=sum(one.end is None for one in look.offsets.values()),
            produced=produced, consumed=consumed, valid_for=valid_for(policy),
        )  # fmt: skip

    def _stand(self, place: Place, one: Offsets, at: Instant) -> _Stand:
        was = self._stands.get(place)
        return was if was is not None and was.committed == one.committed else _Stand(one.committed, at)

    def _excluded(self, place: Place, policy: LagPolicy, at: Instant) -> bool:
        return policy.exclude_after is not None and at - self._stands[place].since >= policy.exclude_after


def valid_for(policy: LagPolicy) -> float:
    """Seconds after which a measurement is unknown: three that should have come did not, half a minute at least."""
    return max(30.0, 3.0 * policy.every)


def _rates(last: Look | None, look: Look) -> tuple[float | None, float | None]:
    """Records produced and consumed a second, over the partitions that both looks know."""
    if last is None or look.at <= last.at:
        return None, None
    produced = consumed = 0
    told_ends = told_commits = False
    for place, now in look.offsets.items():
        was = last.offsets.get(place)
        if was is None or was.end is None or now.end is None or now.end < was.end:
            continue  # not told, or the topic was made anew
        produced += now.end - was.end
        told_ends = True
        if was.committed is not None and now.committed is not None:
            consumed += max(0, now.committed - was.committed)
            told_commits = True
    seconds = look.at - last.at
    return produced / seconds if told_ends else None, consumed / seconds if told_commits else None


@value
class LagNeed:
    """Replicas that a lag needs, and how that came about.

    `drained`: by time to drain, else by records a replica. `wanted`: before the cap; `most`: the cap, None without one.
    """

    replicas: float
    wanted: float
    drained: bool = False
    most: int | None = None


def need(measured: LagMeasured, policy: LagPolicy, activation: float, per_replica: float | None) -> LagNeed:
    """Replicas for a lag. `per_replica`: records a second that one does, None when it is not known yet."""
    if measured.standing <= activation:
        return LagNeed(replicas=0.0, wanted=0.0)
    lag = measured.lag or 0.0
    drained = policy.drain_within is not None and per_replica is not None and per_replica > 0.0
    if policy.drain_within is not None and per_replica is not None and per_replica > 0.0:
        wanted = (lag / policy.drain_within + (measured.produced or 0.0)) / per_replica
    else:
        wanted = lag / policy.target
    most = _most(measured, policy)
    replicas = wanted
    if policy.even_distribution and measured.partitions:
        replicas = float(even(wanted, measured.partitions))
    if most is not None:
        replicas = min(replicas, most)
    return LagNeed(replicas=max(1.0, replicas), wanted=wanted, drained=drained, most=most)


def _most(measured: LagMeasured, policy: LagPolicy) -> int | None:
    """More consumers than partitions have nothing to do."""
    if policy.limit_to_partitions_with_lag:
        return measured.with_lag
    return None if policy.allow_idle_consumers or not measured.partitions else measured.partitions


def even(wanted: float, partitions: int) -> int:
    """The fewest replicas, at least `wanted`, that each have the same number of partitions; else all partitions."""
    least = ceil(wanted - TOLERANCE)
    if least <= 0:
        return 0
    return next((count for count in range(least, partitions + 1) if partitions % count == 0), partitions)
