"""Gathers requests, sends what goes together, and gives each its own answer: the shell of `runtime.core.batching`.

One that fails does not fail the others: a batch that the engine refuses, or whose answer cannot be taken apart, is sent
again request by request, once. Who leaves is left out, and a batch that everybody has left is given up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from events.clock import Clock
from events.units import Instant, Seconds
from runtime.core.batching.formats import Asked, Document, NotApart, apart, together
from runtime.core.batching.gathering import Batch, Gatherer, Knobs, Member
from runtime.core.batching.tuning import EVERY, Look, State

logger = logging.getLogger(__name__)

RECENT_MOST: Final = 4096
"""Times of answers that are remembered between two looks."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the engine said. `batch`: requests that it answered at once."""

    status: int
    body: bytes
    batch: int = 1


Send = Callable[[str, Document, str], Awaitable[Reply]]
"""`send(path, body, authorization)`: to the engine. Raises OSError or TimeoutError."""

Rule = Callable[[State, Look, Seconds], State]


@dataclass(frozen=True, slots=True)
class Tuned:
    """How the size of batches is found: by a rule, for a promise. Without one it stays."""

    rule: Rule
    promise: Seconds


@dataclass(slots=True, eq=False)
class _Call:
    """One request that waits for its answer."""

    asked: Asked
    authorization: str
    member: Member
    answer: asyncio.Future[Reply]


class Batcher:
    """`ask` for an answer; `run` beside it, if it is to be tuned."""

    def __init__(self, clock: Clock, send: Send, state: State, tuned: Tuned | None) -> None:
        self._clock, self._send, self._state, self._tuned = clock, send, state, tuned
        self._gatherer = Gatherer(state.knobs, patient=tuned is None)
        self._calls: dict[Member, _Call] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._count = 0
        self._recent: deque[float] = deque(maxlen=RECENT_MOST)
        self._busy_since: float | None = None
        self._busy = self._longest = 0.0
        self._sent = self._filled = 0
        self.batches = self.requests = self.alone = 0
        """Batches sent; requests in them; requests that were sent again alone."""

    @property
    def knobs(self) -> Knobs:
        """What is allowed now."""
        return self._gatherer.knobs

    @property
    def waiting(self) -> int:
        """Requests that gather."""
        return self._gatherer.waiting

    async def ask(self, asked: Asked, authorization: str) -> Reply:
        """The answer to this request. Cancelled: its client is gone. Raises OSError, TimeoutError."""
        now = self._clock.now()
        self._count += 1
        member = Member(f"{self._count}", (asked.key, authorization), asked.size, now)
        call = _Call(asked, authorization, member, asyncio.get_running_loop().create_future())
        self._calls[member] = call
        self._gatherer.add(member)
        self._go()
        try:
            reply = await call.answer
        finally:
            self._gatherer.leave(member)
            del self._calls[member]
        took = self._clock.now() - now
        self._recent.append(took)
        return reply

    async def run(self) -> None:
        """Tune until cancelled."""
        while self._tuned is not None:
            await self._clock.sleep_until(Instant(self._clock.now() + EVERY))
            self._state = self._tuned.rule(self._state, self._look(), self._tuned.promise)
            self._gatherer.knobs = self._state.knobs
            self._go()

    async def close(self) -> None:
        """Give up what is under way."""
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = list(self._sending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> Look:
        """What the last half second showed. Of the GPU's use only this is seen from here: a batch was at the engine."""
        now, took = self._clock.now(), sorted(self._recent)
        busy = self._busy + (0.0 if self._busy_since is None else now - self._busy_since)
        fill = self._filled / self._sent / self.knobs.most if self._sent else 0.0
        p99 = Seconds(took[int(0.99 * len(took))]) if took else None
        look = Look(
            min(1.0, busy / EVERY),
            p99,
            self._filled / busy if busy else 0.0,
            fill,
            self._gatherer.waiting,
            Seconds(self._longest),
        )
        self._recent.clear()
        self._busy = self._longest = 0.0
        self._sent = self._filled = 0
        if self._busy_since is not None:
            self._busy_since = now
        return look

    def _go(self) -> None:
        """Send what may go; look again when time alone lets something go."""
        now = self._clock.now()
        for batch in self._gatherer.take(now):
            if self._busy_since is None:
                self._busy_since = now
            self.batches, self.requests = self.batches + 1, self.requests + len(batch.members)
            self._sent, self._filled = self._sent + 1, self._filled + sum(one.size for one in batch.members)
            task = asyncio.create_task(self._serve(batch))
            self._sending.add(task)
            task.add_done_callback(self._served)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._gatherer.due(now)
        if due is not None:
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, due - now), self._go)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._gatherer.ended()
        if not self._gatherer.running and self._busy_since is not None:
            self._busy += self._clock.now() - self._busy_since
            self._busy_since = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a batch failed in a way that it must not", exc_info=error)
        self._go()

    async def _serve(self, batch: Batch) -> None:
        calls = [call for member in batch.members if (call := self._calls.get(member)) is not None]
        if not calls:
            return
        began = self._clock.now()
        sending = asyncio.ensure_future(self._together(calls))
        left = asyncio.ensure_future(_over(calls))
        try:
            await asyncio.wait([sending, left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()  # everybody has their answer, or has left
            left.cancel()
            self._longest = max(self._longest, self._clock.now() - began)
            with suppress(asyncio.CancelledError):
                await sending
            with suppress(asyncio.CancelledError):
                await left

    async def _together(self, calls: Sequence[_Call]) -> None:
        """Answer all of them, from one request or, where that fails, from one each."""
        asked = [call.asked for call in calls]
        if len(calls) > 1:
            answers = await self._many(asked, calls[0].authorization)
            if answers is not None:
                for call, answer in zip(calls, answers, strict=True):
                    _tell(call, Reply(200, json.dumps(answer).encode(), len(calls)))
                return
            self.alone += len(calls)
        for call in calls:  # in turn: an engine that takes one at a time is given no more
            if not call.answer.done():
                await self._one(call)

    async def _many(self, asked: Sequence[Asked], authorization: str) -> list[Document] | None:
        try:
            reply = await self._send(asked[0].path, together(asked), authorization)
            return apart(asked, json.loads(reply.body)) if reply.status == 200 else None
        except (OSError, TimeoutError, NotApart, ValueError) as error:
            logger.warning("a batch of %d is sent again one by one: %s", len(asked), str(error) or type(error).__name__)
            return None

    async def _one(self, call: _Call) -> None:
        try:
            _tell(call, await self._send(call.asked.path, call.asked.body, call.authorization))
        except (OSError, TimeoutError) as error:
            if not call.answer.done():
                call.answer.set_exception(error)


def _tell(call: _Call, reply: Reply) -> None:
    if not call.answer.done():
        call.answer.set_result(reply)


async def _over(calls: Sequence[_Call]) -> None:
    """Return once each has an answer, or nobody who waits for it."""
    await asyncio.wait([call.answer for call in calls])
