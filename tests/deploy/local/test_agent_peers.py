"""Agents of several nodes on one log: bytes come from each other, and the origin is asked once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.policy import RoomPolicy
from deploy.compose.peers import tls_contexts
from deploy.local.agent import AgentSettings
from deploy.local.agent_peers import PeerSettings
from deploy.local.flight import Why
from deploy.local.node_agent import NodeAgent, NodeSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.log import Query
from events.names import Topic
from events.units import Seconds
from tests.support.certificates import Authority
from tests.support.flaky_origin import Origin, served
from tests.support.weights_stage import QUICK, content

PATIENCE = 60.0
PEERS = PeerSettings("127.0.0.1:0", "127.0.0.1", 0, "a token of some length", gather=Seconds(20.0))
DATA = content(12)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


class Nodes:
    """Agents `a` and `b` on one log."""

    def __init__(self, folder: Path, peers: PeerSettings = PEERS) -> None:
        self.clock = SystemClock()
        self.log = MemoryEventLog(self.clock)
        agent = AgentSettings(fetching=QUICK, room=RoomPolicy())
        self.a, self.b = (
            NodeAgent(folder / name, NodeSettings(name, agent, scrub_rate=0.0, peers=peers), self.log, self.clock)
            for name in ("a", "b")
        )

    async def until_known(self) -> None:
        """Both have told where they are."""
        async with asyncio.timeout(PATIENCE):
            while True:
                told = [r.envelope.data async for r in self.log.read(Query(Topic.CACHES, newest_per_key=True))]
                if {one.node for one in told if one.peer} == {"a", "b"}:
                    return
                await asyncio.sleep(0.05)

    async def until_one_waits(self) -> NodeAgent:
        """The one that waits for the other."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for node in (self.a, self.b):
                    if node.stats().waits_for_peers:
                        return node
                await asyncio.sleep(0.02)

    async def fetch(self, node: NodeAgent, wanted: Wanted) -> Path:
        """Have it there; the use is ended at once."""
        async with asyncio.timeout(PATIENCE):
            had = await node.agent.have(wanted, lambda seen: None)
        had.end()
        return had.path


@asynccontextmanager
async def nodes(folder: Path, peers: PeerSettings = PEERS) -> AsyncIterator[Nodes]:
    made = Nodes(folder, peers)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.log.close)
        for node in (made.a, made.b):
            await node.start()
            stack.push_async_callback(node.stop)
        await made.until_known()
        yield made


async def test_the_second_nodes_bytes_come_from_the_first(tmp_path: Path) -> None:
    """What one node has, the other reads there; of the origin it asks only what is there now."""
    with served(Origin(DATA)) as origin:
        async with nodes(tmp_path) as both:
            wanted = Wanted(origin.url, DIGEST)
            await both.fetch(both.a, wanted)
            before = origin.sent
            path = await both.fetch(both.b, wanted)
            assert path.read_bytes() == DATA
            assert origin.sent == before
            assert both.b.stats().from_peers_bytes == len(DATA)


async def test_two_that_begin_at_once_ask_the_origin_once(tmp_path: Path) -> None:
    """One goes first, the other waits and then reads there."""
    with served(Origin(DATA)) as origin:
        origin.open_gate.clear()
        async with nodes(tmp_path) as both:
            wanted = Wanted(origin.url, DIGEST)
            fetches = [asyncio.create_task(both.fetch(node, wanted)) for node in (both.a, both.b)]
            await both.until_one_waits()
            origin.open_gate.set()
            paths = await asyncio.gather(*fetches)
            assert [path.read_bytes() for path in paths] == [DATA, DATA]
            assert origin.sent < 2 * len(DATA)  # a hedge may ask for a chunk twice
            stats = (both.a.stats(), both.b.stats())
            assert sum(one.waits_for_peers for one in stats) == 1
            assert sum(one.from_peers_bytes for one in stats) >= len(DATA)


async def test_one_that_waits_can_be_stopped(tmp_path: Path) -> None:
    """A prewarm that waits for another node's fetch makes way at once."""
    with served(Origin(DATA)) as origin:
        origin.open_gate.clear()
        async with nodes(tmp_path) as both:
            wanted = Wanted(origin.url, DIGEST)
            flights = {node: node.agent.fly(wanted, Why.PREWARM) for node in (both.a, both.b)}
            waits = await both.until_one_waits()
            async with asyncio.timeout(PATIENCE):
                waits.agent.stop(wanted)
                await asyncio.wait({flights[waits].done})
                assert type(flights[waits].done.exception()).__name__ == "Yielded"
                origin.open_gate.set()
                await asyncio.wait({flight.done for flight in flights.values()})


async def test_without_the_token_nothing_is_served(tmp_path: Path) -> None:
    """401 for who has none or a wrong one."""
    with served(Origin(DATA)) as origin:
        async with nodes(tmp_path) as both, aiohttp.ClientSession() as session:
            await both.fetch(both.a, Wanted(origin.url, DIGEST))
            url = f"{both.a.teller.peer}/blobs/{DIGEST.replace(':', '/')}"
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                async with session.get(url, headers=headers) as answer:
                    assert answer.status == 401


async def test_over_tls(tmp_path: Path) -> None:
    """With certificates of one authority; who has none is not spoken with."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("agent")
    server, client = tls_contexts(authority.certificate, cert, key, "cache_peer_tls_cert")
    with served(Origin(DATA)) as origin:
        peers = replace(PEERS, server_tls=server, client_tls=client)
        async with nodes(tmp_path / "nodes", peers) as both, aiohttp.ClientSession() as session:
            await both.fetch(both.a, Wanted(origin.url, DIGEST))
            await both.fetch(both.b, Wanted(origin.url, DIGEST))
            assert both.b.stats().from_peers_bytes == len(DATA)
            assert both.a.teller.peer.startswith("https://")
            with pytest.raises(aiohttp.ClientError):
                await session.get(both.a.teller.peer)
