"""The one shape of a policy over grains of time, and the one that is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from autoscaler.core.forecast.hold import Outlook, Past
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


DEFAULT_COST: Final = Seconds(2500.0)
"""What a cold start is worth when nobody says, in seconds of one idle replica: 42 minutes. A choice of this project;
what other prices give is in docs/benchmarks.md."""


@dataclass(frozen=True, slots=True)
class Relume:
    """Ours: hold what is worth holding by its forecast (`autoscaler.core.forecast.hold`)."""

    cold_start_cost: Seconds = DEFAULT_COST

    def begin(self) -> Outlook:
        """Nothing is known."""
        return Outlook(Past())

    def after(self, state: Outlook, needed: int) -> Outlook:
        """Learn what happened, and look ahead."""
        return Outlook(state.after(needed))

    def hold(self, state: Outlook) -> int:
        """By expected cost."""
        return state.hold(self.cold_start_cost)
