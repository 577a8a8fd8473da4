"""Snapshots, memories, policies and decisions as JSON and back: what a wish carries, so that it can be taken again."""

from __future__ import annotations

from typing import Final, TypeVar, cast

from pydantic import JsonValue, TypeAdapter

from autoscaler.core.model import Decision, Memory, Snapshot
from autoscaler.core.policy import ScalingPolicy

T = TypeVar("T")

_SNAPSHOT: Final = TypeAdapter(Snapshot)
_MEMORY: Final = TypeAdapter(Memory)
_POLICY: Final = TypeAdapter(ScalingPolicy)
_DECISION: Final = TypeAdapter(Decision)


def snapshot_json(snapshot: Snapshot) -> dict[str, JsonValue]:
    """A snapshot, every field, in camelCase."""
    return _dump(_SNAPSHOT, snapshot)


def read_snapshot(raw: dict[str, JsonValue]) -> Snapshot:
    """ValueError when `raw` is no snapshot. Unknown fields are ignored: two releases may run side by side."""
    return _SNAPSHOT.validate_python(raw)


def memory_json(memory: Memory) -> dict[str, JsonValue]:
    """A memory, every field."""
    return _dump(_MEMORY, memory)


def read_memory(raw: dict[str, JsonValue]) -> Memory:
    """ValueError when `raw` is no memory."""
    return _MEMORY.validate_python(raw)


def policy_json(policy: ScalingPolicy) -> dict[str, JsonValue]:
    """A policy, every field."""
    return _dump(_POLICY, policy)


def read_policy(raw: dict[str, JsonValue]) -> ScalingPolicy:
    """ValueError when `raw` is no policy."""
    return _POLICY.validate_python(raw)


def decision_json(decision: Decision) -> dict[str, JsonValue]:
    """A decision, every field."""
    return _dump(_DECISION, decision)


def read_decision(raw: dict[str, JsonValue]) -> Decision:
    """ValueError when `raw` is no decision."""
    return _DECISION.validate_python(raw)


def _dump(adapter: TypeAdapter[T], value: T) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", adapter.dump_python(value, mode="json", by_alias=True))
