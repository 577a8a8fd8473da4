"""How many cores a fetch could have, from what the kernel tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldstart.cache.cores import Cores
from events.units import Instant

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells which cores are idle")


class Steps:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> Instant:
        return Instant(self.at)

    async def sleep_until(self, instant: Instant) -> None:
        raise AssertionError("nobody waits here")


class Kernel:
    """The two files, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.stat, self.quota = folder / "stat", folder / "cpu.max"
        self.idle(0.0)

    def idle(self, seconds: float) -> None:
        """Of all cores that this process is bound to together, since the boot; others are always idle."""
        own, ticks = sorted(os.sched_getaffinity(0)), os.sysconf("SC_CLK_TCK")
        lines = [f"cpu{core} 9 9 9 {int(seconds * ticks / len(own))} 0 9 9 0 0 0" for core in own]
        self.stat.write_text(
            "\n".join(["cpu 9 9 9 999999 9 9 9 0 0 0", *lines, "cpu99999 9 9 9 77777 0 0 0", "intr 1"])
        )


def cores(kernel: Kernel, clock: Steps) -> Cores:
    return Cores(clock, kernel.stat, kernel.quota)


def test_idle_cores_are_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody used and what this process used, as a mean since the last time; and as many as there are, at most."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    used = [0.0]
    monkeypatch.setattr("time.process_time", lambda: used[0])
    kernel, clock = Kernel(tmp_path), Steps()
    seen = cores(kernel, clock)
    clock.at, used[0] = 1.0, 0.5
    kernel.idle(2.0)
    assert seen.to_be_had() == pytest.approx(2.5)
    clock.at = 2.0
    kernel.idle(99.0)
    assert seen.to_be_had() == 4.0


def test_one_core_is_always_to_be_had_and_a_quota_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the others are; and however idle they are, a container has what its group may use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    kernel, clock = Kernel(tmp_path), Steps()
    seen = cores(kernel, clock)
    clock.at = 100.0
    assert seen.to_be_had() == pytest.approx(1.0, abs=0.2)
    kernel.quota.write_text("150000 100000\n")
    bounded = cores(kernel, clock)
    clock.at = 101.0
    kernel.idle(400.0)
    assert bounded.to_be_had() == 1.5


def test_a_moment_is_too_short_to_measure(tmp_path: Path) -> None:
    """The kernel counts in hundredths: asked again at once, it says what it said."""
    kernel, clock = Kernel(tmp_path), Steps()
    seen = cores(kernel, clock)
    clock.at = 1.0
    told = seen.to_be_had()
    clock.at = 1.01
    kernel.idle(50.0)
    assert seen.to_be_had() == told


@pytest.mark.parametrize("text", [None, "", "cpu0 nonsense", "cpu0 1"])
def test_unknown_is_not_told(tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that tells otherwise, or nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    kernel, clock = Kernel(tmp_path), Steps()
    if text is None:
        kernel.stat.unlink()
    else:
        kernel.stat.write_text(text)
    seen = cores(kernel, clock)
    clock.at = 1.0
    assert seen.to_be_had() is None
