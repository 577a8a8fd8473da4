"""The one shape of a policy over grains of time, and the one that is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from autoscaler.core.forecast.hold import Outlook, Past
from autoscaler.core.policy import COST_MOST
from events.units import Seconds

S = TypeVar("S")


class GrainPolicy(Protocol[S]):
    """Says from the past alone how many replicas to hold. Nothing is known at first."""

    def begin(self) -> S:
        """What is remembered of a model that was never seen."""
        ...

    def after(self, state: S, needed: int) -> S:
        """What is remembered once a grain has ended in which at most `needed` replicas were needed at once."""
        ...

    def hold(self, state: S) -> int:
        """Replicas to hold ready through the next grain."""
        ...


DEFAULT_IDLE_GB: Final = Seconds(400.0)
"""What a cold start is worth when nobody says, in seconds of one idle GB. Chosen where it costs 1.40 times the memory
of `keepalive(1m)` on the half of the Azure Functions sample that the prior was not learned from; what other prices give
is in docs/benchmarks.md."""


@dataclass(frozen=True, slots=True)
class Relume:
    """Ours: hold what is worth holding by its forecast (`autoscaler.core.forecast.hold`)."""

    cold_start_cost: Seconds

    def begin(self) -> Outlook:
        """Nothing is known."""
        return Outlook(Past())

    def after(self, state: Outlook, needed: int) -> Outlook:
        """Learn what happened, and look ahead."""
        return Outlook(state.after(needed))

    def hold(self, state: Outlook) -> int:
        """By expected cost."""
        return state.hold(self.cold_start_cost)


@dataclass(frozen=True, slots=True)
class RelumeByMemory:
    """Ours, with one price for all models, in what their replicas take: a cold start is worth one GB that idles for so
    long, so a small model is held longer. It is made for each model, whose memory is declared beforehand."""

    idle_gb: Seconds = DEFAULT_IDLE_GB

    def of(self, memory_gb: float) -> Relume:
        """For a model whose replicas take so much each. What takes nothing is held as long as anything may be."""
        worth = self.idle_gb / memory_gb if memory_gb > 0.0 else COST_MOST
        return Relume(Seconds(min(COST_MOST, worth)))
