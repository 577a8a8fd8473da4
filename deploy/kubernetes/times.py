"""Instants as Kubernetes writes them."""

from __future__ import annotations

import datetime as dt

from events.units import Instant


def micro_time(at: float) -> str:
    """MicroTime, as leases and events have it: always six digits."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time(at: float) -> str:
    """Time, as conditions have it: whole seconds."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str) -> Instant:
    """Either of them."""
    return Instant(dt.datetime.fromisoformat(text).timestamp())
