"""The cold-start budget: what a start could have taken at least, what it took, and which phase broke the promise. Pure.

``T_min = max(bytes/network, bytes/disk, bytes/digest) + T_engine + T_first_token`` (field note on cold starts, §1): the
bytes have to come from where they are (the *tier*) as fast as was measured, and the engine needs what its quickest
start needed. Whether a promise could have been kept is computed, never asserted; what was not measured is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coldstart.core.phases import one_by_one
from events.types.replicas import Phase, PhaseSpan
from events.units import Bytes, Instant, Seconds

ENGINE_PHASES = (Phase.SPAWN, Phase.LOAD, Phase.WAKE, Phase.WARMUP)
"""What an engine needs wherever its weights are."""

ANSWER = "answer"
"""Ready to the first byte of the answer: the part of a cold start that is no phase of the replica."""


class Tier(StrEnum):
    """Where the weights were when the start began."""

    SLEEP = "sleep"
    """In a process that is there already, and sleeps."""
    MEMORY = "memory"
    DISK = "disk"
    REMOTE = "remote"


class Verdict(StrEnum):
    """What became of the promise."""

    MET = "met"
    MISSED = "missed"
    """It could have been kept."""
    IMPOSSIBLE = "impossible"
    """Even with everything at its quickest it could not."""


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes a second as they were measured; None: not yet."""

    network: float | None = None
    disk: float | None = None
    digest: float | None = None
    """SHA-256 on one core."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A cold start against its promise. `by`: the phase that cost most beyond its least; empty when it was met."""

    verdict: Verdict
    least: Seconds | None
    by: str = ""


def least_for_bytes(size: Bytes, tier: Tier, speeds: Bandwidths) -> Seconds | None:
    """Seconds in which bytes of that tier can be where an engine maps them; None: nothing was measured.

    From remote they pass network and digest at the same time (the disk is written behind, and they stay in memory).
    """
    if tier in (Tier.SLEEP, Tier.MEMORY) or not size:
        return Seconds(0.0)
    if tier is Tier.DISK:
        return None if not speeds.disk else Seconds(size / speeds.disk)
    if not speeds.network:
        return None
    return Seconds(max(size / speeds.network, size / speeds.digest if speeds.digest else 0.0))


def least(for_bytes: float | None, quickest: Mapping[Phase, Seconds] | None, answer: Seconds) -> Seconds | None:
    """The least that a whole cold start takes. `quickest`: each phase at its quickest so far; `answer`: the time from
    ready to first byte. None: a part was never measured.

    The bytes come while the engine is spawned, and it reads while it loads: so of bytes and engine at their quickest
    the larger counts, not the sum. Of a start by waking, `quickest` has the wake and neither spawn nor load.
    """
    if for_bytes is None or quickest is None:
        return None
    engine = {phase: quickest.get(phase, Seconds(0.0)) for phase in ENGINE_PHASES}
    loaded = max(for_bytes, engine[Phase.SPAWN] + engine[Phase.LOAD]) + engine[Phase.WAKE]
    return Seconds(loaded + engine[Phase.WARMUP] + answer)


def parts_of(spans: Sequence[PhaseSpan], arrived: Instant, ready: Instant, first_byte: Instant) -> dict[str, Seconds]:
    """What one request waited for, by phase: its wait cut along the start's spans. Phases that it did not see are left
    out, and so is what went on beside another phase that had begun before."""
    began = min((span.started_at for span in spans), default=ready)
    parts = {str(Phase.HOLD): began - arrived, ANSWER: first_byte - max(ready, arrived)}
    for span in one_by_one(spans):
        ended = first_byte if span.ended_at is None else span.ended_at
        parts[str(span.phase)] = parts.get(str(span.phase), 0.0) + max(0.0, ended - max(span.started_at, arrived))
    return {part: Seconds(parts[part]) for part in (*map(str, Phase), ANSWER) if parts.get(part, 0.0) > 0}


def judge(
    promised: Seconds, floor: Seconds | None, parts: Mapping[str, Seconds], quickest: Mapping[Phase, Seconds] | None
) -> Judged:
    """The verdict over what a request waited for.

    One that kept its promise was possible, whatever the floor says: floors are measurements. Of a missed one the phase
    is named that took most beyond its quickest, of an impossible one the longest.
    """
    if sum(parts.values()) <= promised:
        return Judged(Verdict.MET, floor)
    if floor is not None and floor > promised:
        return Judged(Verdict.IMPOSSIBLE, floor, _longest(parts))
    known = {str(phase): seconds for phase, seconds in (quickest or {}).items()}
    lost = {part: Seconds(seconds - known.get(part, 0.0)) for part, seconds in parts.items()}
    return Judged(Verdict.MISSED, floor, _longest(lost))


def _longest(parts: Mapping[str, Seconds]) -> str:
    return max(parts, key=lambda part: parts[part], default="")
