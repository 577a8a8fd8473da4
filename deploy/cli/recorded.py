"""Recorded decisions over the admin API: which stood at a time, and what another policy would have said."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused

if TYPE_CHECKING:
    from autoscaler.core.policy import ScalingPolicy
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


def what_if(items: Sequence[Mapping[str, Any]], file: Path) -> list[dict[str, Any]]:
    """Each recorded situation, decided by what `file` says instead.

    Each sees what was seen then (demand, replicas, signals), and goes on from what it would have wished and remembered
    itself. What its own wishes would have changed of demand and replicas is not known here: `relume tune` simulates it.
    """
    from autoscaler.codec import read_policy, read_snapshot  # noqa: PLC0415 - as above
    from autoscaler.core.decide import decide  # noqa: PLC0415 - as above
    from autoscaler.core.model import Memory  # noqa: PLC0415 - as above
    from autoscaler.core.view import Scheduled  # noqa: PLC0415 - as above
    from autoscaler.own import OwnPolicyFailed, own_policy  # noqa: PLC0415 - as above
    from autoscaler.schedules import schedules_of  # noqa: PLC0415 - as above
    from events.units import Instant  # noqa: PLC0415 - as above

    given = _scaling(file)
    rows: list[dict[str, Any]] = []
    memory, wished = Memory(), None
    for item in items:
        try:
            snapshot, was = read_snapshot(item["snapshot"]), read_policy(item["policy"])
        except ValueError:
            continue  # of another release; said by how many rows there are
        policy = _instead(file, given, was)
        seen = snapshot if not rows else replace(snapshot, memory=memory, wished=wished)
        seen = replace(seen, memory=Memory()) if not rows and policy.name != was.name else seen
        if policy.schedules != was.schedules:
            schedule = schedules_of(policy.schedules)
            wants = Scheduled() if schedule is None else schedule(Instant(snapshot.taken_at))
            seen = replace(seen, scheduled=wants.replicas, schedule_changes_at=wants.changes_at)
        try:
            with redirect_stdout(sys.stderr):  # what one's own policy prints
                decision = decide(seen, policy, Instant(snapshot.taken_at), own_policy(policy.name))
        except OwnPolicyFailed as error:
            raise Refused(f"policy {error}", remedy="mend the function") from error
        memory, wished = decision.memory, decision.replicas
        rows.append({
            "time": item["time"], "replicas": item["replicas"], "reasons": item["reasons"],
            "wouldBe": decision.replicas, "wouldBeReasons": [reason.value for reason in decision.reasons],
        })  # fmt: skip
    return rows


def _wish(item: Mapping[str, Any]) -> WishDecided:
    from events.types.decisions import WishDecided  # noqa: PLC0415 - as above

    snapshot = item["snapshot"]
    return WishDecided(
        model=item["model"], uid=str(snapshot.get("uid", "")), revision=int(snapshot.get("revision", 0)),
        replicas=item["replicas"], priority=int(item["policy"].get("priority", 0)), reasons=tuple(item["reasons"]),
        snapshot=snapshot, policy=item["policy"], memory=item["memory"],
    )  # fmt: skip


def _instead(file: Path, given: Mapping[str, Any], was: ScalingPolicy) -> ScalingPolicy:
    """The policy that a file gave, for the model whose policy was this."""
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    from autoscaler.core.policy import by_pool  # noqa: PLC0415 - as above
    from autoscaler.slo_spec import promising  # noqa: PLC0415 - as above
    from autoscaler.spec import ScalingSpec  # noqa: PLC0415 - as above

    try:
        resolved = ScalingSpec.model_validate(given).resolve(slots=was.slots, priority=was.priority)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(f"{file}: {where or 'scaling'}: {first['msg']}", remedy="see docs/reference/model.md") from error
    resolved = by_pool(replace(resolved, gpus=was.gpus, sleeps=was.sleeps), was.pool_cost)
    return promising(resolved, was.objectives, target_given="target" in given)


def _scaling(file: Path) -> dict[str, Any]:
    """A model's `spec.scaling`: of a whole document, of its `scaling:` alone, or bare."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - as above
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    try:
        read: Any = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (OSError, YAMLError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    for key in ("spec", "scaling"):
        if isinstance(read, dict) and isinstance(read.get(key), dict):
            read = read[key]
    if not isinstance(read, dict):
        raise Refused(f"{file} has no mapping", remedy="write such as: policy: kpa")
    return read
