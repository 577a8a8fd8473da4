"""The cold start's slice of a model's policy: plain numbers, resolved from the spec once."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """Bounds of one model's hold queue."""

    max_requests: int
    max_bytes: Bytes
    max_wait: Seconds


@dataclass(frozen=True, slots=True)
class ColdStartPolicy:
    """The promise (`sla`), the hold queue's bounds, and how often held streams get a comment (None: never)."""

    sla: Seconds
    hold: HoldPolicy
    heartbeat: Seconds | None
