"""An event loop whose time is simulated: when nothing can run, it jumps to the next timer instead of waiting.

So ten minutes of a whole system take a second, `asyncio.timeout` and clocks agree, and the same seed runs the same way.
Work for threads is done at once, on the loop's own thread.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from events.units import Instant

T = TypeVar("T")

START = 1_800_000_000.0
"""Seconds since the epoch at which simulations begin."""


class Deadlock(Exception):
    """Everything waits, and no timer is set: this would wait for ever."""


class _Jump(selectors.SelectSelector):
    """Never waits; asks for a jump in time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float], None] = lambda _: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock
        self.jump(timeout)
        return []


class _AtOnce(ThreadPoolExecutor):
    """Does what it is given before it answers."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever waits for the result gets it
            done.set_exception(error)
        return done


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._simulated = START
        jump = _Jump()
        super().__init__(jump)
        self._clock_resolution = (
            1e-6  # more than two neighbouring floats of this size are apart: timers at `time` are due
        )
        jump.jump = self._jump
        self.set_default_executor(_AtOnce(1))

    def time(self) -> float:
        return self._simulated

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """It has no threads. (asyncio would wait in one, which no simulated time brings any nearer.)"""

    def _jump(self, seconds: float) -> None:
        self._simulated += seconds


class LoopClock:
    """The clock of a simulated loop: see `events.clock.Clock`."""

    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time())

    async def sleep_until(self, instant: Instant) -> None:
        if instant <= self.now():
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(instant, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def simulate(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` to its end on a simulated loop; no task may be left when it returns."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work())
