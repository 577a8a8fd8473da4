"""How long an event loop was held up by what runs on it, apart from a machine that is busy with other things.

A thread beside it does the same, sleeping and looking at the clock, and nothing else. What holds up both (the
interpreter's lock is with a thread that no core takes) is not the loop's doing, nor is the time in which the loop's own
thread was ready and no core took it (Linux tells); what else holds up the loop is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

STEP: Final = 0.005
"""Seconds between two looks."""

Span = tuple[float, float]
"""From when to when something did not come to its turn."""


class Beside:
    """A thread that sleeps and looks, within a `with`; `missed` are the spans in which it did not come to its turn."""

    def __init__(self) -> None:
        self.missed: list[Span] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beside", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(10)

    def _run(self) -> None:
        before = time.monotonic()  # noqa: TID251 - real stalls are measured
        while not self._end.wait(STEP):
            now = time.monotonic()  # noqa: TID251 - as above
            if now - before > 2 * STEP:
                self.missed.append((before, now))
            before = now


def queued() -> float:
    """Seconds that this thread has been ready to run while no core took it, ever; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


class Watch:
    """What it saw of a loop: `longest` is the longest time, in seconds, that the loop alone was held up."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._spans: list[tuple[Span, float]] = []
        self._over = False

    @property
    def longest(self) -> float:
        """Of all spans until now; each without what the thread beside missed too, and without waits for a core."""
        return max(own(span, self._beside.missed, waited) for span, waited in self._spans)

    async def run(self) -> None:
        """Look until the end."""
        before, waited = time.monotonic(), queued()  # noqa: TID251 - real stalls are measured
        while not self._over:
            await asyncio.sleep(STEP)
            now, waits = time.monotonic(), queued()  # noqa: TID251 - as above
            self._spans.append(((before + STEP, now), waits - waited))
            before, waited = now, waits

    def end(self) -> None:
        """It has seen enough."""
        self._over = True


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """The running loop, watched within an `async with`."""
    with Beside() as beside:
        watch = Watch(beside)
        looking = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            watch.end()
            await looking


async def longest_stall(seconds: float) -> float:
    """The longest that the loop alone was held up in so many seconds."""
    async with watched() as watch:
        await asyncio.sleep(seconds)
    return watch.longest


def own(span: Span, missed: list[Span], waited: float = 0.0) -> float:
    """What of a span was not missed by the other one too, and was no wait for a core. (Where it was both it counts
    twice: on a busy machine a stall may be told shorter than it was, never longer.)"""
    begin, end = span
    shared = sum(max(0.0, min(end, to) - max(begin, since)) for since, to in missed)
    return max(0.0, end - begin - shared - waited)
