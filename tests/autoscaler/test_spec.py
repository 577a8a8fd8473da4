"""The scaling spec: what the cold-start cost means, and what it does not go with."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoscaler.spec import ScalingSpec


def test_a_cold_start_has_no_price_until_somebody_says() -> None:
    """Then a fixed keep-alive of five minutes is all there is."""
    policy = ScalingSpec().resolve(slots=1, priority=100)
    assert (policy.keep_alive, policy.cold_start_cost) == (300.0, None)


def test_a_price_is_plain_seconds() -> None:
    """As written, and again as it is shown: with the default of what was left out."""
    spec = ScalingSpec.model_validate({"coldStartCost": "10m"})
    assert spec.resolve(slots=1, priority=100).cold_start_cost == 600.0
    again = ScalingSpec.model_validate(spec.model_dump(mode="json", by_alias=True))
    assert again.resolve(slots=1, priority=100) == spec.resolve(slots=1, priority=100)


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        ({"keepAlive": "1m", "coldStartCost": "10m"}, "keepAlive 1m and coldStartCost 10m"),
        ({"coldStartCost": "0"}, "greater than or equal to 1"),
        ({"coldStartCost": "8d"}, "less than or equal to 604800"),
    ],
)
def test_what_it_does_not_go_with(scaling: dict[str, str], said: str) -> None:
    """Two rules for one thing, and prices that mean nothing."""
    with pytest.raises(ValidationError) as raised:
        ScalingSpec.model_validate(scaling)
    assert said in str(raised.value)
