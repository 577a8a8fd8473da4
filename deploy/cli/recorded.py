"""Recorded decisions over the admin API: all of a model, and which stood at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused

if TYPE_CHECKING:
    from events.types.decisions import WishDecided

MOST: Final = 10_000
"""Decisions that are asked for at once: what the admin API gives."""


def instant_of(text: str) -> float:
    """An RFC 3339 time; wrong use when it is none."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"{text!r} is no time; write such as 2026-11-30T18:00:00Z") from error
    if read.tzinfo is None:
        raise click.UsageError(f"{text!r} has no time zone; write {text}Z for UTC")
    return read.timestamp()


def recorded(connection: Connection, model: str) -> list[dict[str, Any]]:
    """The decisions on record, oldest first; refused when there are none."""
    own = connection.get(f"/v1alpha1/models/{segment(model)}")["metadata"]["name"]
    items: list[dict[str, Any]] = connection.get("/v1alpha1/decisions", {"model": own, "limit": MOST})["items"]
    if not items:
        raise Refused(f"nothing was decided for {own} yet", remedy="ask again once it was asked for")
    return items[::-1]


def until(items: Sequence[dict[str, Any]], at: float) -> list[dict[str, Any]]:
    """The decisions up to a time; the last one stood then. Refused when there is none."""
    before = [item for item in items if datetime.fromisoformat(item["time"]).timestamp() <= at]
    if not before:
        first = items[0]["time"]
        raise Refused("nothing on record is as old", why=f"the oldest of {len(items)} decisions is of {first}")
    return before


def explained(item: Mapping[str, Any]) -> dict[str, Any]:
    """The decision in sentences with its numbers, from its record alone."""
    from autoscaler.explain import explain_decision  # noqa: PLC0415 - takes a fifth of a second to import

    try:
        told = explain_decision(_wish(item))
    except ValueError as error:
        raise Refused(f"the decision of {item['time']} cannot be read: {error}") from error
    return {"model": item["model"], "sentences": list(told.sentences), "facts": dict(told.facts)}


def _wish(item: Mapping[str, Any]) -> WishDecided:
    from events.types.decisions import WishDecided  # noqa: PLC0415 - as above

    snapshot = item["snapshot"]
    return WishDecided(
        model=item["model"], uid=str(snapshot.get("uid", "")), revision=int(snapshot.get("revision", 0)),
        replicas=item["replicas"], priority=int(item["policy"].get("priority", 0)), reasons=tuple(item["reasons"]),
        snapshot=snapshot, policy=item["policy"], memory=item["memory"],
    )  # fmt: skip
