"""The JSON shapes of pools of GPUs, and of what people say of cards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from deploy.api.shapes import Metadata, Shape


class PoolStatus(Shape):
    """How a pool is doing."""

    leader: str | None
    """Who places and lends in it; null: nobody has yet, and the settings wait for one who does."""
    yielded_last_hour: int
    """Training jobs that had to give their GPUs away within the last hour."""
    budget_left: int
    """How many more may have to, now."""
    settings: dict[str, float]
    """What is gone by, all of it in numbers: seconds, shares, counts."""


class PoolItem(Shape):
    """The settings of a pool."""

    metadata: Metadata
    spec: dict[str, JsonValue]
    status: PoolStatus


class PoolList(Shape):
    """Declared pools, by name. A pool that nobody declares has the defaults, and is not listed."""

    items: list[PoolItem]


class CardBody(Shape):
    """Why."""

    reason: Annotated[str, Field(max_length=1000)] = ""


class MarkedCard(Shape):
    """A card, and what a person said of it."""

    node: str
    card: str
    cordoned: bool
    at: str
    reason: str
