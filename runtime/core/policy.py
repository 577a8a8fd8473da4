"""The runtime's slice of a model's policy: plain numbers, resolved from the spec once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from events.units import Seconds


class Cancels(StrEnum):
    """What an engine does with a request whose connection closes."""

    ALWAYS = "always"  # stops at once, streamed or not
    STREAMS = "streams"  # stops a streamed one; runs a non-streamed one to its end (llama.cpp)
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Budgets of one dispatched request; their clocks start at dispatch, not at arrival."""

    first_byte: Seconds
    idle: Seconds
    total: Seconds


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """SSE comments to held streamed requests, each `every` seconds. The first one commits the status 200."""

    every: Seconds
