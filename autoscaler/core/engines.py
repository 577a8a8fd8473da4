"""Numbers that a model's engines tell of themselves, over all its replicas: what runs and waits in them, how full their
caches are. Only of models that follow one."""

from __future__ import annotations

from typing import Final

from autoscaler.core.policy import EngineNumber, ScalingPolicy, SignalPolicy
from events.types.metrics import ReplicaMetrics
from events.units import Instant, Seconds

FRESH: Final = Seconds(10.0)
"""What an engine said longer ago says nothing of now: they are asked every other second."""

VALID: Final = Seconds(30.0)
"""How long a sum counts: as long as other numbers of which none came."""

REPLICAS_MOST: Final = 1000
"""Replicas of a model that are remembered: the one heard first makes room."""


class Engines:
    """The newest word of each replica."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, tuple[Instant, ReplicaMetrics]] = {}

    def take(self, told: ReplicaMetrics, at: Instant) -> None:
        """What one replica says. Those that have said nothing for long are gone."""
        self._told.pop(told.replica, None)
        self._told[told.replica] = (at, told)
        while len(self._told) > REPLICAS_MOST or next(iter(self._told.values()))[0] <= at - FRESH:
            del self._told[next(iter(self._told))]

    def total(self, number: EngineNumber, ready: int) -> float | str:
        """The sum over all replicas; or why it is not known: as long as one that is ready has not told, what the others
        told is no sum."""
        values = [value for _, one in self._told.values() if (value := _number(one, number)) is not None]
        if len(values) >= ready:
            return sum(values)
        if not values and len(self._told) >= ready:
            return f"its engines do not tell {number.value}"
        return f"{len(values)} of {ready} replicas have told {number.value} lately"


def followed(policy: ScalingPolicy) -> tuple[SignalPolicy, ...]:
    """The signals that are numbers of engines."""
    return tuple([one for one in policy.signals if one.engine is not None])


def _number(told: ReplicaMetrics, number: EngineNumber) -> float | None:
    if number is EngineNumber.RUNNING:
        return told.running
    return told.waiting if number is EngineNumber.WAITING else told.kv_cache_use
