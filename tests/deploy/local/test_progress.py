"""Whether a start gets on: signs of life, and none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.local.progress import Progress, Sample, StartDeadline, advance
from events.types.replicas import Phase
from events.units import Instant, Seconds

BEFORE = Sample(Phase.LOAD, log_bytes=100, cpu_seconds=Seconds(5.0), memory_bytes=50 << 20)
AT = Progress(Instant(1000.0), BEFORE)


@pytest.mark.parametrize(
    ("seen", "after", "moved"),
    [
        (BEFORE, 10.0, False),
        (replace(BEFORE, phase=Phase.WARMUP), 10.0, True),
        (replace(BEFORE, log_bytes=101), 10.0, True),
        (replace(BEFORE, log_bytes=5), 10.0, True),
        (replace(BEFORE, cpu_seconds=Seconds(5.09)), 0.5, False),
        (replace(BEFORE, cpu_seconds=Seconds(5.11)), 0.5, True),
        (replace(BEFORE, cpu_seconds=Seconds(5.9)), 10.0, False),
        (replace(BEFORE, cpu_seconds=Seconds(6.1)), 10.0, True),
        (replace(BEFORE, cpu_seconds=None, memory_bytes=None), 10.0, False),
        (replace(BEFORE, memory_bytes=(51 << 20) - 1), 10.0, False),
        (replace(BEFORE, memory_bytes=51 << 20), 10.0, True),
        (replace(BEFORE, memory_bytes=1 << 20), 10.0, False),
    ],
    ids=["nothing", "phase", "a byte of log", "log rotated", "too little work", "work", "answers probes", "works",
         "cannot be measured", "little memory", "a mebibyte", "memory given back"],
)  # fmt: skip
def test_sign_of_life(seen: Sample, after: float, moved: bool) -> None:
    """What counts as progress, and what does not."""
    now = Instant(1000.0 + after)
    assert advance(AT, seen, now) == (Progress(now, seen) if moved else AT)


def test_creeping_adds_up() -> None:
    """Growth that is too small from look to look counts once it adds up to enough."""
    progress = AT
    for step in range(1, 5):
        seen = replace(BEFORE, memory_bytes=(50 << 20) + step * (300 << 10))
        progress = advance(progress, seen, Instant(1000.0 + step))
    assert progress.at == 1004.0


@pytest.mark.parametrize(
    ("began", "last", "now", "verdict"),
    [
        (0.0, 940.1, 1000.0, ""),
        (0.0, 940.0, 1000.0, "no sign of progress for 60 s in phase load"),
        (0.0, 1799.0, 1799.9, ""),
        (0.0, 1799.0, 1800.0, "not ready after 1800 s, in phase load"),
    ],
)
def test_verdict(began: float, last: float, now: float, verdict: str) -> None:
    """A start has failed a minute after its last sign of life, or after half an hour whatever it does."""
    assert StartDeadline().verdict(Instant(began), Progress(Instant(last), BEFORE), Instant(now)) == verdict
