"""The loop's side of appends: who waits for what, and which events are known already."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from events.adapters.kafka.outgoing import Answer, Append
from events.adapters.kafka.producer import Producer
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.window import Window
from events.adapters.opened import answer_all
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position

KNOWN: Final = 20_000
"""Appended events that are known again in this process."""

_Answer = asyncio.Future[tuple[Position, ...]]
_Place = Position | tuple[_Answer, int]
"""Where an event stands, or which append will say so, and at which place in its answer."""


class Appends:
    """Belongs to one loop."""

    def __init__(self, settings: KafkaSettings, producer: Producer) -> None:
        self._settings = settings
        self._producer = producer
        self._known: Window[_Place] = Window(KNOWN)
        self._answers: dict[int, _Answer] = {}
        self._tokens = itertools.count()
        self.duplicates = 0

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """Write those that are not known yet, and wait for all. Raises LogUnavailable, LogClosed, Unencodable."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        new: list[AnyEnvelope] = []
        found = [self._find(event, answer, new) for event in events]
        if new:
            await self._submit(answer, Append(next(self._tokens), tuple(new)))
        return tuple([await _position(one) for one in found])

    def resolve(self, answers: Iterable[tuple[int, Answer]]) -> None:
        """What the producer says."""
        answer_all(self._answers, answers)

    def _find(self, event: AnyEnvelope, answer: _Answer, new: list[AnyEnvelope]) -> _Place:
        """Where an event stands or will; one that is not known yet joins `new`."""
        ident = (event.source, event.id)
        known = self._known.get(ident)
        if known is not None:
            self.duplicates += 1
            return known
        place = (answer, len(new))
        self._known.put(ident, place)
        new.append(event)
        return place

    async def _submit(self, answer: _Answer, append: Append) -> None:
        """Hand over and wait; what failed is known no longer, so that it may be appended again."""
        error: Exception = LogUnavailable(f"not durable within {self._settings.append_timeout} s")
        if not self._producer.submit(append):
            error = LogUnavailable(f"{self._producer.depth()} events wait to be written; no more may")
            self._forget(append, answer, error)
            raise error
        self._answers[append.token] = answer
        try:
            async with asyncio.timeout(self._settings.append_timeout):
                positions = await asyncio.shield(answer)
        except TimeoutError:
            raise error from None
        except Exception as failed:
            error = failed
            raise
        else:
            for event, position in zip(append.events, positions, strict=True):
                self._known.put((event.source, event.id), position)
        finally:
            del self._answers[append.token]
            if not answer.done() or answer.exception() is not None:
                append.abandoned = True
                self._forget(append, answer, error)

    def _forget(self, append: Append, answer: _Answer, error: Exception) -> None:
        for event in append.events:
            self._known.forget((event.source, event.id))
        if not answer.done():  # others may wait for the same events
            answer.set_exception(error)
            answer.exception()  # and if nobody does, nobody need be told


async def _position(found: _Place) -> Position:
    """Of an event that another append may still be writing."""
    if isinstance(found, Position):
        return found
    answer, index = found
    return (await asyncio.shield(answer))[index]
