"""What the answer of a metrics server means: a number, or why there is none. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from autoscaler.core.policy import QueryPolicy, Series
from events.types.metrics import QueryMeasured
from events.units import Seconds

DELAY_MOST: Final = Seconds(3600.0)
"""A delay that is longer is taken for a clock that is wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of all series that a query gave, and how late they are: seconds from the measurement in the place
    that is watched until the answer (None: not known)."""

    values: tuple[float, ...]
    delay: Seconds | None = None


def valid_for(policy: QueryPolicy) -> float:
    """Seconds after which a measurement is unknown: three that should have come did not, half a minute at least. (As
    for lags.)"""
    return max(30.0, 3.0 * policy.every)


def judge(model: str, name: str, policy: QueryPolicy, answer: Answer) -> QueryMeasured:
    """The measurement. Not known is not 0: an empty answer, NaN and infinity have no value unless the declaration says
    that nothing is 0. A need cannot be negative, so such a number is a mistake in the query."""
    value, error = _value(policy, answer.values)
    late = answer.delay if answer.delay is not None and 0.0 <= answer.delay <= DELAY_MOST else Seconds(0.0)
    return QueryMeasured(
        model=model, name=name, value=value, delay=late, series=len(answer.values), error=error,
        valid_for=valid_for(policy) + late,
    )  # fmt: skip


def _value(policy: QueryPolicy, values: tuple[float, ...]) -> tuple[float | None, str]:
    if not values:
        return (0.0, "") if policy.empty_is_zero else (None, "the query gave no series (emptyIsZero counts that as 0)")
    if len(values) > 1 and policy.series is Series.ONE:
        return None, f"the query gave {len(values)} series; aggregate them in it, or write series: sum or series: max"
    if any(math.isnan(one) for one in values):
        return None, "the query gave NaN, such as 0/0"
    value = max(values) if policy.series is Series.MAX else sum(values)  # (math.fsum raises for what overflows)
    if math.isinf(value) or any(math.isinf(one) for one in values):
        return None, "the query gave an infinite number, such as 1/0"
    if value < 0:
        return None, f"the query gave {value:g}; a number of what is to be done cannot be negative"
    return value, ""
