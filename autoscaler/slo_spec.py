"""What the autoscaler reads of a model's `slo`: it belongs to the whole declaration, and only this much concerns us."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from autoscaler.core.policy import Objective, Promised, ScalingPolicy
from events.spec import Duration, Spec
from events.units import Seconds

WAIT_PART: Final = 0.3
"""The part of the promised time to first token that a request may wait for a slot; the rest is the engine's. Compared
with 0.1, 0.2 and 0.5 on the Azure LLM traces (docs/decisions/0061)."""

FULL: Final = 0.75
"""The part of its slots that a replica with a promise is meant to have in use on average: at the same attainment the
cheapest of 0.5 to 1.0 on Azure's conversation trace (docs/decisions/0061)."""

HEADROOM_FROM: Final = 4
"""Of fewer slots none is left free: one request after another needs one replica, not two. Chosen."""

_Positive = Annotated[Duration, Field(gt=0)]


class _Percentiles(Spec):
    model_config = ConfigDict(extra="ignore")

    p50: _Positive | None = None
    p95: _Positive | None = None
    p99: _Positive | None = None

    def objectives(self, of: Promised) -> tuple[Objective, ...]:
        """Those that are given."""
        pairs = ((0.5, self.p50), (0.95, self.p95), (0.99, self.p99))
        return tuple(Objective(part=part, within=Seconds(most), of=of) for part, most in pairs if most is not None)


class SloSlice(Spec):
    """Of `spec.slo` what decisions hang on."""

    model_config = ConfigDict(extra="ignore")

    time_to_first_token: _Percentiles = _Percentiles()
    latency: _Percentiles = _Percentiles()
    availability: Annotated[float, Field(gt=0, lt=100)] | None = None

    def objectives(self) -> tuple[Objective, ...]:
        """All promises, the laxest share first: of the first token, of the whole answer, of availability."""
        found = [*self.time_to_first_token.objectives(Promised.FIRST), *self.latency.objectives(Promised.TOTAL)]
        if self.availability is not None:
            found.append(Objective(part=round(self.availability / 100, 9), of=Promised.AVAILABILITY))
        return tuple(found)


def promising(policy: ScalingPolicy, objectives: tuple[Objective, ...], *, target_given: bool) -> ScalingPolicy:
    """The policy of a model that promises this: how long a request may wait for a slot (only a promise about the first
    token says so), some slots that stay free where the user did not say how many, and that what a replica bears is
    learned. Only `relume` asks for any of it."""
    if not objectives:
        return policy
    first = [one.within for one in objectives if one.of is Promised.FIRST]
    kept = target_given or policy.name != "relume"
    timed = [one for one in objectives if one.of is not Promised.AVAILABILITY]
    full = kept or policy.slots < HEADROOM_FROM or not first
    return replace(
        policy,
        objectives=objectives,
        wait_most=Seconds(WAIT_PART * min(first)) if first else None,
        target=policy.target if full else FULL * policy.slots,
        learns=bool(timed) and not kept and policy.slots > 1,
    )
