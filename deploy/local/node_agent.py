"""The node's agent with all that it does by itself: follows the log, prewarms, tells, clears, scrubs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from coldstart.cache import holding, inventory
from coldstart.cache.tending import Cleared
from coldstart.cache.wanting import Wanted
from coldstart.core.prewarm import PrewarmPolicy
from deploy.local.agent import Agent, AgentSettings, InFlight
from deploy.local.agent_peers import AgentPeers, PeerSettings
from deploy.local.agent_prewarm import Prewarmer
from deploy.local.agent_serving import PeerPort
from deploy.local.agent_telling import Teller
from deploy.local.agent_tending import Tender
from deploy.local.agent_view import AgentView
from events.clock import Clock
from events.fence import Observers
from events.following import Follower
from events.log import Batch, EventLog, Start
from events.names import Topic
from events.types.caches import CacheObserved
from events.units import Instant, Seconds
from events.writer import EventWriter

logger = logging.getLogger(__name__)

STATES: Final = (Topic.MODELS, Topic.DECISIONS, Topic.REPLICAS)
ASKED_FOR: Final = Seconds(3600.0)
"""How long `relume prewarm` keeps counting on a model that nobody else does. A choice."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`scrub_rate`: bytes a second that are read anew; 0: none. `peers` None: no other node is asked or served."""

    node: str
    agent: AgentSettings = field(default_factory=AgentSettings)
    prewarm: PrewarmPolicy = field(default_factory=PrewarmPolicy)
    scrub_rate: float = 20e6
    peers: PeerSettings | None = None


@dataclass(frozen=True, slots=True)
class AgentStats:
    """Counts since the start, and levels now (`fetching`, bytes of the cache)."""

    fetches: int = 0
    fetch_failures: int = 0
    fetched_bytes: int = 0
    evictions: int = 0
    scrubbed_bytes: int = 0
    quarantined: int = 0
    dropped_news: int = 0
    from_peers_bytes: int = 0
    waits_for_peers: int = 0


class NodeAgent:
    """Start it, use `agent` as the cluster's keeper, stop it. Used on one event loop."""

    def __init__(self, root: Path, settings: NodeSettings, log: EventLog, clock: Clock) -> None:
        self._settings = settings
        self._event_log = log
        self._clock = clock
        self.agent = Agent(root, settings.agent, clock)
        self.view = AgentView()
        self._observers = Observers()
        writer = EventWriter(f"relume/agent/{settings.node}", clock)
        self.teller = Teller(self.agent, self.view, log, writer, settings.node)
        self.prewarmer = Prewarmer(self.agent, self.view, clock, settings.prewarm)
        self.tender = Tender(self.agent, clock, settings.scrub_rate, self._damaged)
        self.agent.told = self.teller
        self.teller.after.append(self._ended)
        self._peers: AgentPeers | None = None
        self._port: PeerPort | None = None
        if settings.peers is not None:
            self._peers = AgentPeers(settings.node, settings.peers, settings.agent.fetching, log, clock)
            self._port = PeerPort(self.agent.layout, settings.peers)
            self.agent.nodes = self._peers
        self._tasks: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin everything. Becoming the folder's writer may take as long as another process writes to it. Raises
        OSError when other nodes cannot be served at the address that was given."""
        if self._port is not None and self._peers is not None:
            self.teller.peer = await self._port.start()
            self._run("peers", self._peers.run())
        self._opening = asyncio.create_task(self._open(), name="agent-open")
        states = Follower(self._event_log, self._clock, STATES, Start("newest_per_key"), self._take)
        news = Follower(self._event_log, self._clock, (Topic.REQUESTS,), Start("end"), self._take)
        for name, work in (
            ("states", states.run()), ("news", news.run()), ("prewarm", self.prewarmer.run()),
            ("tell", self.teller.run(self._clock)), ("clear", self.tender.clear()), ("scrub", self.tender.scrub()),
        ):  # fmt: skip
            self._run(name, work)

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"agent-{name}"))

    async def _open(self) -> None:
        await self.agent.open()
        self.prewarmer.wake()
        self.teller.mark()

    async def wait(self) -> None:
        """Return or raise once a part of it has ended."""
        assert self._opening is not None, "start it first"
        await asyncio.shield(self._opening)
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self) -> None:
        """End it; what was fetched so far is kept."""
        tasks = [*self._tasks, *([] if self._opening is None else [self._opening])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        if self._port is not None:
            await self._port.stop()
        await self.agent.close()

    def _take(self, batch: Batch) -> None:
        changed = False
        for record in batch.records:
            changed |= self._observers.admits(record) and self.view.fold(record.envelope)
        if changed:
            self.prewarmer.wake()
            self.teller.mark()

    def _ended(self, wanted: Wanted, error: BaseException | None) -> None:
        if error is None:
            self.prewarmer.succeeded(wanted)
        else:
            self.prewarmer.failed(wanted, error)

    def _damaged(self, digest: str) -> None:
        self.teller.goes(digest, "damaged")
        self.prewarmer.wake()  # who is counted on has that blob again, and no other is fetched

    # What people ask (fulfils `deploy.api.ports.NodeWeights`).

    @property
    def node(self) -> str:
        """Its name."""
        return self._settings.node

    def state(self) -> CacheObserved | None:
        """What was told last."""
        return self.teller.state

    def fetches(self) -> tuple[InFlight, ...]:
        """What is being fetched."""
        return self.agent.in_flight()

    def prewarm(self, model: str) -> str:
        """Count on a model's weights for an hour; its address without secrets, empty: it has none that are cached.

        KeyError: no such model is declared.
        """
        known = self.view.models[model]
        if known.wanted is None:
            return ""
        known.asked_until = Instant(self._clock.now() + ASKED_FOR)
        self.prewarmer.wake()
        return self.agent.shown(known.wanted)

    async def pin(self, name: str, wanted: bool) -> str:
        """Pin or unpin; the digest. NotCached."""
        digest = await asyncio.to_thread(self._pin, name, wanted)
        self.teller.mark()
        self.prewarmer.wake()
        return digest

    def _pin(self, name: str, wanted: bool) -> str:
        layout = self.agent.layout
        with self.agent.cache.changing:
            one = inventory.named(layout, name)
            for snapshot in one.snapshots:
                holding.pin(layout, snapshot, wanted)
        return one.digest

    async def evict(self, name: str) -> str:
        """Take weights out; the digest. NotCached, InUse, Pinned."""
        digest = await asyncio.to_thread(self._evict, name)
        self.teller.goes(digest, "asked")
        return digest

    def _evict(self, name: str) -> str:
        layout = self.agent.layout
        with self.agent.cache.changing:
            one = inventory.named(layout, name)
            inventory.evict(layout, one)
            layout.empty_trash()
        return one.digest

    async def verify(self, digest: str) -> bool:
        """Read a blob anew; one that is wrong is put aside, and fetched anew where somebody counts on it."""
        return not await self.tender.put_aside(digest)

    async def collect(self) -> Cleared:
        """Clear leftovers, and go below the low watermark."""
        cleared = await asyncio.to_thread(self.tender.collect)
        self.teller.mark()
        return cleared

    def stats(self) -> AgentStats:
        """Counts and levels."""
        teller, tender = self.teller, self.tender
        return AgentStats(
            fetches=teller.fetches, fetch_failures=teller.failures, fetched_bytes=teller.fetched_bytes,
            evictions=teller.evictions, scrubbed_bytes=tender.scrubbed_bytes, quarantined=tender.quarantined,
            dropped_news=teller.dropped, from_peers_bytes=0 if self._peers is None else self._peers.given,
            waits_for_peers=0 if self._peers is None else self._peers.waited,
        )  # fmt: skip
