"""Other nodes' agents: what they have is read there first, and what one of them fetches already is waited for.

The event log says who has what and who fetches what (`relume.caches` and the news `relume.weights.*`); bytes go from
agent to agent. A peer is a shortcut: what it gives is verified like all else, and the origin stands behind it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from dataclasses import dataclass
from typing import Final

from coldstart.adapters.peer_source import Peers, PeerSource
from coldstart.core.cache.others import Ahead, Others
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Source
from deploy.local.flight import Flight, Why, Yielded
from events.clock import Clock
from events.following import Follower
from events.log import Batch, EventLog, Start
from events.names import Topic
from events.types.caches import CacheObserved, WeightsFailed, WeightsFetched, WeightsFetchStarted
from events.units import Seconds

logger = logging.getLogger(__name__)

GATHER: Final = Seconds(0.5)
"""Seconds in which our own word must have come back from the log; else nobody is waited for. Ten times its way."""
SETTLE: Final = 0.05
"""Seconds after it: words that were said before ours may come by another partition. Chosen."""
LOOK_EVERY: Final = 0.5
DEMAND_WAITS: Final = Seconds(60.0)
"""A start waits for another node's fetch so long at most, then asks the origin: that may be quicker. Chosen."""
PREWARM_WAITS: Final = Seconds(1800.0)
"""What nobody waits for yet has time. Chosen."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """How this node's agent and others reach each other. `address`: HOST:PORT at which others reach ours (port 0: any
    free one), which listens at `host` and `port`."""

    address: str
    host: str
    port: int
    token: str
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    gather: Seconds = GATHER


class AgentPeers:
    """What is known of other agents. `run` follows the log; `first` is called by the threads of fetches."""

    def __init__(
        self, node: str, settings: PeerSettings, policy: FetchPolicy, log: EventLog, clock: Clock
    ) -> None:  # fmt: skip
        self._node = node
        self._settings = settings
        self._policy = policy
        self._event_log = log
        self._clock = clock
        self._others = Others(node)
        self._changed = threading.Condition()
        self.given = 0
        """Bytes that peers gave."""
        self.waited = 0
        """Fetches that waited for another node's."""

    async def run(self) -> None:
        """Follow what agents tell, until cancelled."""
        states = Follower(self._event_log, self._clock, (Topic.CACHES,), Start("newest_per_key"), self._take)
        news = Follower(self._event_log, self._clock, (Topic.PHASES,), Start("end"), self._take)
        await asyncio.gather(states.run(), news.run())

    def _take(self, batch: Batch) -> None:
        now = self._clock.now()
        with self._changed:
            for record in batch.records:
                data = record.envelope.data
                match data:
                    case CacheObserved():
                        if data.node != self._node:
                            self._others.told(data, now)
                    case WeightsFetchStarted():
                        self._others.started(data.node, data.source, record.envelope.time, now)
                    case WeightsFetched():
                        self._others.ended(data.node, data.source, data.digest)
                    case WeightsFailed():
                        self._others.ended(data.node, data.source, None)
            self._changed.notify_all()

    def first(self, digest: str | None, source: Source, flight: Flight) -> Source:
        """What to read: peers before the origin, once no other node that goes first fetches the same.

        Without a digest that is known before, nothing of another node could be verified, so nobody is waited for.
        Blocks; Yielded when the flight was told to end.
        """
        shown = source.shown()
        if digest is not None or shown.startswith(("hf://", "oci://")):
            self._wait(shown, flight)
        peers = Peers(
            lambda wanted: self._holders(shown, wanted), self._settings.token, self._settings.client_tls, self._lost
        )  # fmt: skip
        return _Counted(self, source, peers, self._policy, self._clock)

    def _wait(self, source: str, flight: Flight) -> None:
        began = self._clock.now()
        with self._changed:
            if self._others.alone(began):
                return
            if not self._changed.wait_for(lambda: self._others.heard_ourselves(source), self._settings.gather):
                logger.info("%s: the log is slow, so nobody is waited for", source)
                return
            self._changed.wait(SETTLE)
            told = False
            while (ahead := self._ahead(source)) is not None:
                if not told:
                    self.waited += 1
                    logger.info("%s is being fetched by node %s; it is waited for", source, ahead.node)
                told = True
                if flight.pace.ended:
                    raise Yielded("it is not wanted now")
                patience = DEMAND_WAITS if flight.why is Why.DEMAND else PREWARM_WAITS
                if self._clock.now() - began >= patience:
                    logger.info("%s: node %s takes too long; the source is asked", source, ahead.node)
                    return
                self._changed.wait(LOOK_EVERY)

    def _ahead(self, source: str) -> Ahead | None:
        return self._others.ahead(source, self._clock.now())

    def _holders(self, source: str, digest: str) -> tuple[str, ...]:
        with self._changed:
            return self._others.holders(source, digest, self._clock.now())

    def _lost(self, address: str) -> None:
        with self._changed:
            self._others.lost(address, self._clock.now())


class _Counted(PeerSource):
    """Tells what peers gave."""

    def __init__(self, owner: AgentPeers, source: Source, peers: Peers, policy: FetchPolicy, clock: Clock) -> None:
        super().__init__(source, peers, policy, clock)
        self._owner = owner

    def came(self, count: int) -> None:
        super().came(count)
        self._owner.given += count
