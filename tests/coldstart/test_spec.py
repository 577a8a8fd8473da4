"""The cold start's slice of the declaration."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from coldstart.core.policy import ColdStartPolicy, HoldPolicy
from coldstart.spec import ColdStartSpec


def test_defaults_resolve_to_plain_numbers() -> None:
    """Three seconds promised; a thousand requests, 64 MiB and five minutes held; no heartbeat."""
    assert ColdStartSpec().resolve() == ColdStartPolicy(
        sla=3.0,  # type: ignore[arg-type]  # Seconds
        hold=HoldPolicy(max_requests=1000, max_bytes=64 << 20, max_wait=300.0),  # type: ignore[arg-type]  # NewTypes
        heartbeat=None,
    )


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ({"sla": "10s"}, "sla", 10.0),
        ({"heartbeat": "5s"}, "heartbeat", 5.0),
        ({"hold": {"maxRequests": 0}}, "hold", HoldPolicy(0, 64 << 20, 300.0)),  # type: ignore[arg-type]  # NewTypes
        ({"hold": {"maxBytes": "1Ki"}}, "hold", HoldPolicy(1000, 1024, 300.0)),  # type: ignore[arg-type]  # NewTypes
        ({"hold": {"maxWait": "1m"}}, "hold", HoldPolicy(1000, 64 << 20, 60.0)),  # type: ignore[arg-type]  # NewTypes
    ],
)
def test_every_field_arrives_in_the_policy(written: dict[str, object], field: str, value: object) -> None:
    """No dead knob."""
    assert getattr(ColdStartSpec.model_validate(written).resolve(), field) == value


@pytest.mark.parametrize(
    "written", [{"sla": 3}, {"hold": {"maxRequests": -1}}, {"hold": {"maxwait": "1s"}}, {"heartbeats": "1s"}]
)
def test_what_is_not_understood_is_refused(written: dict[str, object]) -> None:
    """Numbers without a unit, negative bounds, unknown fields."""
    with pytest.raises(ValidationError):
        ColdStartSpec.model_validate(written)
