"""Whether a start still gets on. Pure: samples in, a verdict out.

A big model on a slow disk may take half an hour and is fine as long as something moves; one that hangs is seen a minute
after its last sign of life. Signs of life: the phase changed, the log grew, the processes worked (a tenth of one core
since the last sign: answering our probes takes less), their memory grew by a mebibyte, bytes of weights arrived.
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
    fetched: int = 0
    """Bytes of weights that were verified; changes also while their fetch waits for its turn."""


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
    if new.phase is not old.phase or new.log_bytes != old.log_bytes or new.fetched != old.fetched:
        return True
    if new.cpu_seconds is not None:
        worked = new.cpu_seconds - (old.cpu_seconds or 0.0)
        if worked >= max(LEAST_CPU, WORKING * passed):
            return True
    return new.memory_bytes is not None and new.memory_bytes - (old.memory_bytes or 0) >= LEAST_GROWTH


@dataclass(frozen=True, slots=True)
class StartDeadline:
    """A start has failed when nothing moved for `stall`, or at `cap` whatever moves.

    While weights are fetched there is no cap, and nothing may move for `fetch_stall`: a source may ask for a minute's
    patience, and the fetch has retries and an end of its own.
    """

    stall: Seconds = Seconds(60.0)
    cap: Seconds = Seconds(1800.0)
    fetch_stall: Seconds = Seconds(150.0)

    def verdict(self, began_at: Instant, progress: Progress, now: Instant) -> str:
        """Why the start has failed, or empty."""
        fetching = progress.seen.phase is Phase.FETCH
        stall = self.fetch_stall if fetching else self.stall
        if now - progress.at >= stall:
            return f"no sign of progress for {stall:g} s in phase {progress.seen.phase}"
        if not fetching and now - began_at >= self.cap:
            return f"not ready after {self.cap:g} s, in phase {progress.seen.phase}"
        return ""
