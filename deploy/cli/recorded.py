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


STATES: Final = ("relume.models", "relume.grants", "relume.replicas")
"""Topics that tell what stood beside a wish."""


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


def explained(connection: Connection, item: Mapping[str, Any], at: float) -> dict[str, Any]:
    """The decision in sentences with its numbers, and what stood beside it at a time: a number by hand, the grant, the
    replicas."""
    from autoscaler.explain import Records, explain  # noqa: PLC0415 - takes a fifth of a second to import
    from events.types.grants import GrantDecided  # noqa: PLC0415 - as above
    from events.types.models import ModelDeclared  # noqa: PLC0415 - as above
    from events.types.replicas import ReplicasObserved  # noqa: PLC0415 - as above

    wish = _wish(item)
    stood = {topic: _stood(connection, topic, wish, at) for topic in STATES}
    declared, grant, observed = (stood[topic] for topic in STATES)
    assert declared is None or isinstance(declared, ModelDeclared)
    assert grant is None or isinstance(grant, GrantDecided)
    assert observed is None or isinstance(observed, ReplicasObserved)
    try:
        told = explain(Records(wish, grant, observed, declared, past=True))
    except ValueError as error:
        raise Refused(f"the decision of {item['time']} cannot be read: {error}") from error
    return {"model": item["model"], "sentences": list(told.sentences), "facts": dict(told.facts)}


def _stood(connection: Connection, topic: str, wish: WishDecided, at: float) -> object:
    """The newest state of the wish's model in a topic that is as old as a time; None: there is none."""
    from events.codec import decode_structured  # noqa: PLC0415 - as above
    from events.envelope import Envelope  # noqa: PLC0415 - as above

    found: object = None
    for line in connection.lines("/v1alpha1/events", {"topic": topic, "model": wish.model, "follow": False}):
        read = decode_structured(line)
        if isinstance(read, Envelope) and read.time <= at and getattr(read.data, "uid", "") == wish.uid:
            found = read.data
    return found


def _wish(item: Mapping[str, Any]) -> WishDecided:
    from events.types.decisions import WishDecided  # noqa: PLC0415 - as above

    snapshot = item["snapshot"]
    return WishDecided(
        model=item["model"], uid=str(snapshot.get("uid", "")), revision=int(snapshot.get("revision", 0)),
        replicas=item["replicas"], priority=int(item["policy"].get("priority", 0)), reasons=tuple(item["reasons"]),
        snapshot=snapshot, policy=item["policy"], memory=item["memory"],
    )  # fmt: skip
