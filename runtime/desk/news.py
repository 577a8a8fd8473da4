"""What the desk tells the world: news that is offered to the log, and its beats."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

from events.envelope import AnyEnvelope
from events.log import EventLog, EventLogError
from events.types.gateways import GatewayBeat
from events.types.phases import ColdStartFinished, ReplicaDrained, ReplicaSuspected
from events.types.requests import RequestWindow
from events.units import Seconds
from events.writer import EventWriter
from runtime.core.meter import merged

logger = logging.getLogger(__name__)

BEAT = Seconds(1.0)
"""A gateway says that it lives each second (design §4); one unseen for five is dead."""

TAKEN_WITHIN = Seconds(2.0)
"""A beat that is not durable by then is given up: two of them still fit into the five seconds."""

MOST_PENDING = 10_000
"""News kept while the log takes none; windows count one a revision."""

News = RequestWindow | ReplicaDrained | ReplicaSuspected | ColdStartFinished


class Offering(Protocol):
    """The part of `EventLog` that news needs."""

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See `EventLog.offer`."""


@dataclass(slots=True)
class _Kept:
    """Windows of one revision that the log did not take: intervals that are over, as one, and the one that goes on."""

    over: RequestWindow | None
    last: RequestWindow

    def add(self, window: RequestWindow) -> None:
        if window.started_at != self.last.started_at:
            self.over = self.last if self.over is None else merged(self.over, self.last)
        self.last = window


class Newsagent:
    """Offers news to the log at once; what it does not take is kept and offered again with the next beat.

    Kept windows of intervals that are over become one, so none of what they measured is lost, and none is told before
    an earlier one of its revision: so nothing is counted twice either.
    """

    def __init__(self, log: Offering, writer: EventWriter) -> None:
        self._log = log
        self._writer = writer
        self._windows: dict[tuple[str, str, int], _Kept] = {}
        self._others: deque[News] = deque()
        self.dropped = 0
        """News that could not even be kept."""

    @property
    def pending(self) -> int:
        """News that the log has not taken yet."""
        return len(self._windows) + len(self._others)

    def tell(self, news: News) -> None:
        """Offer it, or keep it."""
        if isinstance(news, RequestWindow):
            self._tell_window(news)
        elif (self._others or not self._offer(news)) and self._room():
            self._others.append(news)

    def flush(self) -> None:
        """Offer again what is kept, until the log takes no more."""
        while self._others:
            if not self._offer(self._others[0]):
                return
            self._others.popleft()
        for key, kept in list(self._windows.items()):
            if not self._offer_kept(kept):
                return
            del self._windows[key]

    def _tell_window(self, window: RequestWindow) -> None:
        key = (window.model, window.uid, window.revision)
        kept = self._windows.get(key)
        if kept is not None:
            kept.add(window)
            if window.edge and kept.over is not None:
                kept.over = replace(kept.over, edge=True)  # goes ahead of it, and as soon
            if self._offer_kept(kept):
                del self._windows[key]
        elif not self._offer(window) and self._room():
            self._windows[key] = _Kept(None, window)

    def _offer_kept(self, kept: _Kept) -> bool:
        if kept.over is not None:
            if not self._offer(kept.over):
                return False
            kept.over = None
        return self._offer(kept.last)

    def _offer(self, news: News) -> bool:
        return self._log.offer(self._writer.envelope(news))

    def _room(self) -> bool:
        if self.pending < MOST_PENDING:
            return True
        self.dropped += 1
        return False


class Heart:
    """Says to the log that this gateway lives."""

    def __init__(self, log: EventLog, writer: EventWriter, beat: GatewayBeat) -> None:
        self._log = log
        self._writer = writer
        self.says = beat
        """What the next beat says."""
        self.missed = 0
        """Beats that the log did not take."""

    async def beat(self) -> None:
        """Beat once; a log that does not take it in time is left alone until the next beat."""
        try:
            async with asyncio.timeout(TAKEN_WITHIN):
                await self._log.append([self._writer.envelope(self.says)])
        except (EventLogError, TimeoutError) as error:
            self.missed += 1
            logger.warning("the event log did not take a beat: %s", str(error) or "too slow")
