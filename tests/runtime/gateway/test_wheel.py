"""The timer wheel, driven by hand on a simulated clock."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.clock import SimulatedClock
from events.units import Instant
from runtime.gateway.wheel import Wheel


class Deadline:
    """Due at `at`; remembers when it was."""

    def __init__(self, at: float) -> None:
        self.wake_slot = 0
        self.at = at
        self.fired: list[float] = []

    def wake(self, now: Instant) -> float | None:
        """Act if it is time."""
        if now < self.at:
            return self.at
        self.fired.append(now)
        return None


async def test_a_moved_deadline_fires_once_and_late_enough() -> None:
    """A deadline moved on while it waits is looked at early and acted on only when it is due."""
    clock = SimulatedClock()
    wheel = Wheel(clock, asyncio.get_running_loop())
    start = clock.now()
    one = Deadline(start + 1)
    wheel.wake_by(one, one.at)
    one.at = start + 5
    wheel.wake_by(one, one.at)
    for second in range(1, 8):
        clock.set(start + second)
        wheel.run_due()
    assert one.fired == [start + 6]  # the first look after 5 s and its slot
    assert len(wheel) == 0
    wheel.close()


async def test_an_earlier_deadline_moves_forward_and_forgetting_removes() -> None:
    """Asking for an earlier instant moves the sleeper; a forgotten one is never woken."""
    clock = SimulatedClock()
    wheel = Wheel(clock, asyncio.get_running_loop())
    start = clock.now()
    early, gone = Deadline(start + 1), Deadline(start + 1)
    wheel.wake_by(early, start + 60)
    wheel.wake_by(early, start + 1)
    wheel.wake_by(gone, start + 1)
    wheel.forget(gone)
    clock.set(start + 2)
    wheel.run_due()
    assert (early.fired, gone.fired, len(wheel)) == ([start + 2], [], 0)
    wheel.close()


async def test_a_sleeper_that_raises_does_not_silence_the_others() -> None:
    """Its error is the loop's; everybody else in the slot is still woken."""

    class Broken(Deadline):
        def wake(self, now: Instant) -> float | None:
            raise RuntimeError("broken")

    clock = SimulatedClock()
    wheel = Wheel(clock, asyncio.get_running_loop())
    start = clock.now()
    sleepers = [Deadline(start + 1) for _ in range(20)]
    for sleeper in [*sleepers, Broken(start + 1)]:
        wheel.wake_by(sleeper, start + 1)
    clock.set(start + 2)
    with pytest.raises(RuntimeError):
        wheel.run_due()
    wheel.run_due()
    assert all(sleeper.fired for sleeper in sleepers)
    wheel.close()


async def test_an_instant_in_the_past_does_not_spin() -> None:
    """A sleeper that always wants to be woken in the past is woken once a slot."""

    class Eager(Deadline):
        def wake(self, now: Instant) -> float | None:
            self.fired.append(now)
            return now - 10

    clock = SimulatedClock()
    wheel = Wheel(clock, asyncio.get_running_loop())
    eager = Eager(0)
    wheel.wake_by(eager, clock.now() - 5)
    for _ in range(3):
        clock.set(clock.now() + 1)
        wheel.run_due()
    assert len(eager.fired) == 3
    wheel.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), max_size=20), st.floats(0.02, 3))
async def test_nobody_is_early_or_forgotten(moves: list[tuple[float, float]], step: float) -> None:
    """Whatever is set and moved: each deadline fires once, not before its time, within a step of it."""
    clock = SimulatedClock()
    wheel = Wheel(clock, asyncio.get_running_loop())
    start = clock.now()
    sleepers = [Deadline(start + max(first, last)) for first, last in moves]
    for sleeper, (first, last) in zip(sleepers, moves, strict=True):
        wheel.wake_by(sleeper, start + first)
        wheel.wake_by(sleeper, start + last)
    while clock.now() < start + 25:
        clock.set(clock.now() + step)
        wheel.run_due()
    for sleeper in sleepers:
        assert len(sleeper.fired) == 1
        assert sleeper.at <= sleeper.fired[0] <= sleeper.at + 2 * step + 0.1
    wheel.close()
