"""Recording wishes. A recorded wish is the act: the allocator follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from autoscaler.deciding import Decider, Taken
from autoscaler.record import wish_of
from autoscaler.waiting import Pauses, Waker
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.log import EventLog, LogClosed, LogUnavailable
from events.payload import Unencodable
from events.writer import EventWriter

RECORDINGS_MOST: Final = 16
"""Appends in flight: an edge does not wait for the commit of what was decided before it. The log commits in groups."""

ORDINARY_MOST: Final = 2
"""Appends in flight beyond which only edges are decided: theirs should not stand behind many in the log."""


class Recorder:
    """Appends wishes, some appends at a time, each with the epoch of its partition."""

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, pauses: Pauses, waker: Waker) -> None:
        self._event_log = log
        self._clock = clock
        self._writer = writer
        self._pauses = pauses
        self._waker = waker
        self._recordings: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(RECORDINGS_MOST)
        self._tries = 0
        self.recorded = 0
        self.closed = False
        """The log was closed."""
        self.failure: BaseException | None = None
        """What must not happen, and did."""

    @property
    def ordinary(self) -> bool:
        """Whether what is no edge may be decided now."""
        return len(self._recordings) < ORDINARY_MOST

    async def record(self, taken: Sequence[Taken], decider: Decider) -> None:
        """Have these recorded; waits for room only."""
        await self._room.acquire()
        task = asyncio.create_task(self._record(taken, decider))
        self._recordings.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Give up what is under way; what was recorded stands."""
        tasks = list(self._recordings)
        for task in tasks:
            task.cancel()
        return tasks

    async def _record(self, taken: Sequence[Taken], decider: Decider) -> None:
        """Append the wishes; only then do they count. If the log fails, all is decided anew after a pause."""
        try:
            positions = await self._event_log.append([self._envelope(one) for one in taken])
        except LogUnavailable as error:
            self._tries += 1
            await self._pauses.after(self._tries, error)
            for one in taken:
                decider.not_recorded(one)
            return
        except Unencodable as error:
            if len(taken) > 1:  # which of them is not told; nothing was written
                for one in taken:
                    await self._record([one], decider)
            else:
                decider.not_recordable(taken[0], error, self._clock.now())
            return
        self._tries = 0
        self.recorded += len(taken)
        now = self._clock.now()
        for one, position in zip(taken, positions, strict=True):
            decider.on_record(one, position, now)

    def _envelope(self, one: Taken) -> AnyEnvelope:
        wish = wish_of(one.snapshot, one.declared.policy, one.decision)
        return self._writer.envelope(wish, cause=one.view.cause, epoch=one.tenure.fold.epoch)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """There is room for another, and work for models that changed meanwhile."""
        self._recordings.discard(task)
        self._room.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LogClosed):
            self.closed = True
        elif error is not None:
            self.failure = error
        self._waker.wake()
