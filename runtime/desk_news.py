"""What the desk tells the world: news that is offered to the log, and its beats."""

from __future__ import annotations

import asyncio
import logging
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
"""News kept while the log takes none. By model and kind, so that fewer are needed than models are active."""

News = RequestWindow | ReplicaDrained | ReplicaSuspected | ColdStartFinished


class Offering(Protocol):
    """The part of `EventLog` that news needs."""

    def offer(self, envelope: AnyEnvelope) -> bool:
        """See `EventLog.offer`."""


class Newsagent:
    """Offers news to the log at once; what it does not take is kept and offered again with the next beat.

    Kept windows of one revision become one, so none of what they measured is lost.
    """

    def __init__(self, log: Offering, writer: EventWriter) -> None:
        self._log = log
        self._writer = writer
        self._pending: dict[tuple[str, ...], News] = {}
        self.dropped = 0
        """News that could not even be kept."""

    @property
    def pending(self) -> int:
        """News that the log has not taken yet."""
        return len(self._pending)

    def tell(self, news: News) -> None:
        """Offer it, after all that is kept of the same kind and subject."""
        key = _key(news)
        kept = self._pending.pop(key, None)
        if isinstance(kept, RequestWindow) and isinstance(news, RequestWindow):
            news = merged(kept, news)
        if not self._log.offer(self._writer.envelope(news)):
            self._keep(key, news)

    def flush(self) -> None:
        """Offer again what is kept, until the log takes no more."""
        for key, news in list(self._pending.items()):
            if not self._log.offer(self._writer.envelope(news)):
                return
            del self._pending[key]

    def _keep(self, key: tuple[str, ...], news: News) -> None:
        if len(self._pending) >= MOST_PENDING:
            self.dropped += 1
            return
        self._pending[key] = news


def _key(news: News) -> tuple[str, ...]:
    match news:
        case RequestWindow():
            return ("window", news.model, news.uid, str(news.revision))
        case ColdStartFinished():
            return ("cold start", news.model, news.request)
        case ReplicaDrained():
            return ("drained", news.model, news.replica)
        case ReplicaSuspected():
            return ("suspected", news.model, news.replica)


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
