"""The autoscaler as a part, with the measuring of the numbers that its models follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.adapters.own_process import OwnProcess
from autoscaler.gauges import Readers
from autoscaler.loop import Autoscaler
from autoscaler.measuring import Measuring
from autoscaler.settings import AutoscalerSettings
from deploy.api.ports import Reading
from deploy.compose.part import readings, until_one_ends
from events.clock import Clock
from events.log import EventLog
from events.units import Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

READ_BACK: Final = 10.0
"""Longest wait at start for past demand, seconds. Without an answer the parts after it start all the same."""


class AutoscalerPart:
    """The autoscaler of one process, which calls itself `owner` in the log."""

    def __init__(self, log: EventLog, clock: Clock, owner: str, readers: Readers) -> None:
        writer = EventWriter(f"relume/autoscaler/{owner}", clock)
        self.autoscaler = Autoscaler(log, clock, writer, AutoscalerSettings(owner=owner), OwnProcess())
        teller = EventWriter(f"relume/signals/{owner}", clock)
        self._measuring = Measuring(self.autoscaler.signalled, readers, log.offer, clock, teller)
        self._measures: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See `Part.start`. In one process replicas of an earlier run are started after this: the wish for them may be
        about to fall, which past demand tells; so it is waited for, within `READ_BACK`."""
        await self.autoscaler.start()
        self._measures = asyncio.create_task(self._measuring.run(), name="signals")
        try:
            async with asyncio.timeout(READ_BACK):
                await self.autoscaler.wait_history_read()
        except TimeoutError:
            logger.warning("past demand could not be read back within %.0f s; going on without", READ_BACK)

    async def wait(self) -> None:
        """See `Part.wait`."""
        assert self._measures is not None, "start it first"
        await until_one_ends(self.autoscaler.wait(), self._measures)

    async def stop(self, bound: Seconds) -> None:  # noqa: ARG002 - what it has recorded stands; nothing is to finish
        """See `Part.stop`."""
        if self._measures is not None:
            self._measures.cancel()
            await asyncio.gather(self._measures, return_exceptions=True)
        await self.autoscaler.close()

    def missing(self) -> Sequence[str]:
        """See `Part.missing`."""
        return self.autoscaler.missing()

    def read(self) -> Iterable[Reading]:
        """See `Part.read`."""
        yield from readings("autoscaler", self.autoscaler.statistics())
        yield from readings("signals", self._measuring.counts())
