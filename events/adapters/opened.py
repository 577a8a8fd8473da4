"""What all logs do alike: open within a context, take in foreign events, answer those who wait for an append."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from events.adapters.counters import Counters
from events.clock import Clock
from events.codec import BinaryEvent, Ignored, Rejected
from events.envelope import AnyEnvelope
from events.intake import take_in
from events.log import Position

Positions = tuple[Position, ...]


class OpenedLog(ABC):
    """A log by its own `open`, `close` and `append`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counters = Counters()

    @abstractmethod
    async def open(self) -> None:
        """Get ready. Raises LogUnavailable or LogCorrupt."""

    @abstractmethod
    async def close(self) -> None:
        """End. Calls after this raise LogClosed."""

    @abstractmethod
    async def append(self, events: Sequence[AnyEnvelope]) -> Positions:
        """See `events.log.EventLog`."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append_raw(self, topic: str, raw: BinaryEvent) -> Position | Ignored | Rejected:
        """Take in a foreign producer's CloudEvent (see `events.intake`) that came by another way than the log's own."""
        found = await take_in(self.append, topic, raw, self._clock.now())
        self._counters.ignored += isinstance(found, Ignored)
        self._counters.rejected += isinstance(found, Rejected)
        return found


def answer_all(
    waiting: Mapping[int, asyncio.Future[Positions]], answers: Iterable[tuple[int, Positions | Exception]]
) -> None:
    """Tell appenders, by their tokens, where their events stand or why they do not; one that left is passed over."""
    for token, found in answers:
        answer = waiting.get(token)
        if answer is None or answer.done():
            continue
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)
