"""Reads out of a model's declaration what the slot authority needs of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from coldstart.spec import ColdStartSpec
from events.names import ModelName
from events.types.models import ModelDeclared
from runtime.core.model_slots import Declared
from runtime.spec import TimeoutsSpec


class _Slice(BaseModel):
    """The desk's part of `ModelDeclared.spec`; what others read is ignored here."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)

    aliases: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    timeouts: TimeoutsSpec = Field(default_factory=TimeoutsSpec)
    cold_start: ColdStartSpec = Field(default_factory=ColdStartSpec)


def read_declaration(event: ModelDeclared) -> Declared:
    """The declaration in plain numbers. Raises pydantic.ValidationError where it cannot be read."""
    spec = _Slice.model_validate(event.spec)
    return Declared(
        model=ModelName(event.model),
        uid=event.uid,
        revision=event.revision,
        timeouts=spec.timeouts.resolve(),
        cold_start=spec.cold_start.resolve(),
        aliases=spec.aliases,
    )
