"""What every slice of the declaration is built from: the pydantic base, durations, quantities.

Each package owns its slice of the YAML in its own `spec.py`, made of these. camelCase on the outside, snake_case
inside, unknown fields refused, values frozen.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from events.described import Described
from events.units import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    parse_duration,
    parse_quantity,
    write_duration,
    write_quantity,
)


class Spec(Described, BaseModel):
    """Base of all slices of the declaration."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True,
        allow_inf_nan=False,
    )  # fmt: skip


def _duration(raw: Any) -> Any:
    if isinstance(raw, str):
        return parse_duration(raw)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueError(f"{raw!r} is not a duration; write a number and a unit, such as 500ms, 90s, 5m, 1h30m")  # noqa: TRY004 - pydantic reports ValueErrors
    if raw == 0:
        return 0.0
    raise ValueError(f"{raw!r} has no unit; write {raw}s for seconds")


def _quantity(raw: Any) -> Any:
    if isinstance(raw, str):
        return parse_quantity(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueError(f"{raw!r} is not a quantity; write a number and a unit, such as 512Mi, 16Gi, 2G")  # noqa: TRY004 - pydantic reports ValueErrors
    return raw


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "90s", "5m"]}),
]
"""Seconds, written ``90s``."""

Quantity = Annotated[
    int,
    BeforeValidator(_quantity),
    PlainSerializer(write_quantity, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": QUANTITY_PATTERN}, {"type": "integer", "minimum": 0}],
            "examples": ["512Mi", "16Gi"],
        }
    ),
]
"""Bytes, written ``16Gi``."""
