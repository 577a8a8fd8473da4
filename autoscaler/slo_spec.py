"""What the autoscaler reads of a model's `slo`: it belongs to the whole declaration, and only this much concerns us."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from autoscaler.core.policy import Objective, ScalingPolicy
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


class SloSlice(Spec):
    """Of `spec.slo` what decisions hang on."""

    model_config = ConfigDict(extra="ignore")

    time_to_first_token: _Percentiles = _Percentiles()

    def objectives(self) -> tuple[Objective, ...]:
        """Promises about the time to the first token, the laxest share first."""
        given = self.time_to_first_token
        pairs = ((0.5, given.p50), (0.95, given.p95), (0.99, given.p99))
        return tuple(Objective(part=part, within=Seconds(most)) for part, most in pairs if most is not None)


def promising(policy: ScalingPolicy, objectives: tuple[Objective, ...], *, target_given: bool) -> ScalingPolicy:
    """The policy of a model that promises this: how long a request may wait for a slot, and some slots that stay free
    where the user did not say how many. Only `relume` asks for either."""
    if not objectives:
        return policy
    wait = Seconds(WAIT_PART * min(one.within for one in objectives))
    kept = target_given or policy.slots < HEADROOM_FROM or policy.name != "relume"
    target = policy.target if kept else FULL * policy.slots
    return replace(policy, objectives=objectives, wait_most=wait, target=target)
