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


class BatchRule(StrEnum):
    """How the size of batches is found."""

    ADAPTIVE = "adaptive"
    """By what the engine does in a second with more and with fewer at a time."""
    FIXED = "fixed"
    """It stays, and the window is always waited for."""
    AIMD_GPU = "aimd-gpu"
    """What many run today: more while the engine is little used, fewer when answers are late."""


@dataclass(frozen=True, slots=True)
class Batching:
    """Single requests are gathered before an engine: `most` inputs at a time, the first waits for `window`. `promise`:
    seconds within which 99 of 100 are to be answered."""

    rule: BatchRule
    window: Seconds
    most: int
    promise: Seconds


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """SSE comments to held streamed requests, each `every` seconds. The first one commits the status 200."""

    every: Seconds
