"""How long an event loop was held up by what runs on it, apart from a machine that is busy with other things.

A thread beside it does the same, sleeping and looking at the clock, and nothing else. What holds up both (no core is
free) is not the loop's doing; what holds up the loop alone is.
"""

from __future__ import annotations

import asyncio
import threading
import time
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


async def longest_stall(seconds: float) -> float:
    """The longest that the loop alone was held up in so many seconds."""
    spans: list[Span] = []
    with Beside() as beside:
        before = time.monotonic()  # noqa: TID251 - as above
        end = before + seconds
        while before < end:
            await asyncio.sleep(STEP)
            now = time.monotonic()  # noqa: TID251 - as above
            spans.append((before + STEP, now))
            before = now
    return max(own(span, beside.missed) for span in spans)


def own(span: Span, missed: list[Span]) -> float:
    """What of a span was not missed by the other one too."""
    begin, end = span
    shared = sum(max(0.0, min(end, to) - max(begin, since)) for since, to in missed)
    return max(0.0, end - begin - shared)
