"""The only place of the SDK that reads the clock. It has its own, so that it needs nothing of relume."""

from __future__ import annotations

import time


def unix_now() -> float:
    """Seconds since the epoch: what deadlines in notices are given in."""
    return time.time()


def steady_now() -> float:
    """Seconds of a clock that no one sets: what waiting is measured with."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Wait in this thread."""
    time.sleep(seconds)
