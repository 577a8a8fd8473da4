"""Whether a start still gets on. Pure: samples in, a verdict out.

A big model on a slow disk may take half an hour and is fine as long as something moves; one that hangs is seen a minute
after its last sign of life. Signs of life: the phase changed, the log grew, the processes worked (a tenth of one core
since the last sign: answering our probes takes less), their memory grew by a mebibyte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from events.types.replicas import Phase
from events.units import Instant, Seconds

WORKING: Final = 0.1
"""Share of one core below which processes count as waiting."""
LEAST_CPU: Final = Seconds(0.1)
LEAST_GROWTH: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """What is seen of a starting replica. None: cannot be measured (now)."""

    phase: Phase
    log_bytes: int
    cpu_seconds: Seconds | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The last sign of life: when, and what was seen then."""

    at: Instant
    seen: Sample


def advance(before: Progress, seen: Sample, now: Instant) -> Progress:
    """The last sign of life, now that this was seen."""
    if _moved(before.seen, seen, Seconds(now - before.at)):
        return Progress(now, seen)
    return before


def _moved(old: Sample, new: Sample, passed: Seconds) -> bool:
    if new.phase is not old.phase or new.log_bytes != old.log_bytes:
        return True
    if new.cpu_seconds is not None:
        worked = new.cpu_seconds - (old.cpu_seconds or 0.0)
        if worked >= max(LEAST_CPU, WORKING * passed):
            return True
    return new.memory_bytes is not None and new.memory_bytes - (old.memory_bytes or 0) >= LEAST_GROWTH


@dataclass(frozen=True, slots=True)
class StartDeadline:
    """A start has failed when nothing moved for `stall`, or at `cap` whatever moves."""

    stall: Seconds = Seconds(60.0)
    cap: Seconds = Seconds(1800.0)

    def verdict(self, began_at: Instant, progress: Progress, now: Instant) -> str:
        """Why the start has failed, or empty."""
        if now - progress.at >= self.stall:
            return f"no sign of progress for {self.stall:g} s in phase {progress.seen.phase}"
        if now - began_at >= self.cap:
            return f"not ready after {self.cap:g} s, in phase {progress.seen.phase}"
        return ""
