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
class SleepPolicy:
    """At which level replicas sleep that are not wanted any more, and how long before they end."""

    level: int
    keep_alive: Seconds


@dataclass(frozen=True, slots=True)
class ColdStartPolicy:
    """The promise (`sla`), the hold queue's bounds, how often held streams get a comment (None: never), and how
    replicas sleep (None: they end)."""

    sla: Seconds
    hold: HoldPolicy
    heartbeat: Seconds | None
    sleep: SleepPolicy | None = None
