"""When a model that failed to start is tried again. Pure: time is an argument.

Delays double from 1 s to 5 minutes (Kubernetes' CrashLoopBackOff has the same cap; its first delay is 10 s). A success
clears the count, but is on probation: a replica that breaks within its first minute goes on where the count stood, so
one that starts well and dies at once is a crash loop too. One that was ready and ended in order has passed, since many
models live for seconds only. Starts that ran side by side and failed count once. What others may end at any moment,
such as a cache that is full, is asked again within its own time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from events.units import Instant, Seconds

FIRST_DELAY: Final = Seconds(1.0)
LONGEST_DELAY: Final = Seconds(300.0)
PROBATION: Final = Seconds(60.0)


@dataclass(frozen=True, slots=True)
class Backoff:
    """What the failed starts of one revision lead to. `failures`: since the last success; `probation`: before it."""

    failures: int = 0
    probation: int = 0
    last_failure_at: Instant | None = None
    retry_at: Instant | None = None
    reason: str = ""
    message: str = ""
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed start or a crash. `began_at`: when that replica's start began."""

    began_at: Instant
    reason: str
    message: str
    log_tail: tuple[str, ...] = ()
    retry_within: Seconds = LONGEST_DELAY
    """Seconds to the next try at most."""


def delay(failures: int, most: Seconds = LONGEST_DELAY) -> Seconds:
    """Seconds to wait after so many failures in a row: 1, 2, 4, … `most`."""
    if failures <= 0:
        return Seconds(0.0)
    return Seconds(min(most, FIRST_DELAY * 2.0 ** min(failures - 1, 16)))


def failed(before: Backoff, failure: Failure, now: Instant) -> Backoff:
    """After a failed start, or the crash of a replica in its probation."""
    told = replace(before, reason=failure.reason, message=failure.message, log_tail=failure.log_tail)
    if before.failures and before.last_failure_at is not None and failure.began_at <= before.last_failure_at:
        return told  # it began before the last failure was known: the same attempt
    failures = before.failures + before.probation + 1
    retry_at = Instant(now + delay(failures, failure.retry_within))
    return replace(told, failures=failures, probation=0, last_failure_at=now, retry_at=retry_at)


def succeeded(before: Backoff) -> Backoff:
    """After a replica became ready: nothing stands against the next start."""
    return Backoff(probation=max(before.failures, before.probation))


def broke(before: Backoff, failure: Failure, ready_at: Instant, now: Instant) -> Backoff:
    """After a ready replica ended by itself or was replaced: counts as a failed start, unless it had lived."""
    if now - ready_at < PROBATION:
        return failed(before, failure, now)
    return replace(
        Backoff(failures=before.failures, last_failure_at=now, retry_at=before.retry_at),
        reason=failure.reason, message=failure.message, log_tail=failure.log_tail,
    )  # fmt: skip


def lived(before: Backoff) -> Backoff:
    """After a replica has been ready for its probation, or ended in order: what was before is forgotten."""
    return replace(before, probation=0)
