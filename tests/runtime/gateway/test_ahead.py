"""Connections that are opened before there are requests for them: bounded, used in order, and never left behind."""

from __future__ import annotations

import asyncio
import socket

import pytest

from events.units import Seconds
from runtime.gateway import pool as module
from runtime.ports import Ending
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, post
from tests.support.raw_engine import EngineConnection, RawEngine, always, answer
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until


async def test_as_many_as_are_expected_are_open_and_are_used(gateways: Gateways) -> None:
    """Held requests go out on them, in their order, and nothing more is opened."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address], slots=0)
        server = await gateways.start(slots)
        server.expect(*engine.address, 8)
        clients = [await gateways.client(server) for _ in range(8)]
        asking = []
        for index, client in enumerate(clients):
            asking.append(asyncio.ensure_future(client.ask(post(CHAT + b" " * index))))
            await until(lambda index=index: server.stats().held == index + 1)
        await until(lambda: server.stats().upstream_idle == 8)
        slots.slots = 8
        slots.grant()
        assert {reply.status for reply in await asyncio.gather(*asking)} == {200}
        assert [len(request) for request in engine.requests] == sorted(len(request) for request in engine.requests)
        assert engine.connections == 8


async def test_no_more_than_are_missing_are_opened(gateways: Gateways) -> None:
    """Told again and again, as the states of a start come, it opens only what is not there yet."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]))
        for _ in range(3):
            server.expect(*engine.address, 4)
        await until(lambda: server.stats().upstream_idle == 4)
        server.expect(*engine.address, 3)
        server.expect(*engine.address, 6)
        await until(lambda: server.stats().upstream_idle == 6)
        await asyncio.sleep(0)
        assert engine.connections == 6


async def test_all_replicas_together_have_a_bound(gateways: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has only so many descriptors."""
    monkeypatch.setattr(module, "AHEAD_MOST", 5)
    async with RawEngine(always(answer())) as one, RawEngine(always(answer())) as other:
        server = await gateways.start(ScriptedSlots([one.address]))
        server.expect(*one.address, 100)
        server.expect(*other.address, 100)
        await until(lambda: not server.stats().upstream_opening)
        assert 4 <= server.stats().upstream_idle <= 5
        assert one.connections + other.connections <= 5


async def test_a_replica_that_dies_before_it_is_ready_leaves_nothing(gateways: Gateways) -> None:
    """Its connections are gone with it, and the next replica, on the same port, is reached."""
    engine = RawEngine(always(answer()))
    slots = ScriptedSlots([])
    server = await gateways.start(slots)
    async with engine:
        server.expect(*engine.address, 20)
        await until(lambda: server.stats().upstream_idle == 20)
    await until(lambda: server.stats().upstream_idle == 0)
    async with engine:
        slots.addresses = [engine.address]
        client = await gateways.client(server)
        assert (await client.ask(post(CHAT))).status == 200
    assert [outcome.ending for _, outcome in slots.outcomes] == [Ending.FINISHED]


async def test_nobody_uses_them(gateways: Gateways) -> None:
    """They are closed like all that wait, and none are opened in their place."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]), upstream_idle=Seconds(0.2))
        server.expect(*engine.address, 3)
        await until(lambda: engine.connections == 3)
        await until(lambda: server.stats().upstream_idle == 0)
        assert engine.connections == 3


async def test_a_replica_that_does_not_answer_hinders_nobody(gateways: Gateways) -> None:
    """A refused connection ends the opening; nothing is told to anybody."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = ("127.0.0.1", probe.getsockname()[1])
    server = await gateways.start(ScriptedSlots([address]))
    server.expect(*address, 10)
    await until(lambda: not server.stats().upstream_opening)
    assert server.stats().upstream_idle == 0


async def test_requests_that_come_first_end_the_opening(gateways: Gateways) -> None:
    """Whoever must connect is not behind connections that nobody needs."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]))
        client = await gateways.client(server)
        server.expect(*engine.address, 1000)
        assert (await client.ask(post(CHAT))).status == 200
        await until(lambda: not server.stats().upstream_opening)
        assert engine.connections < 1000


async def test_a_closed_gateway_opens_none(gateways: Gateways) -> None:
    """A drain ends what is being opened, and closes what is open."""
    left: list[EngineConnection] = []

    async def keep(connection: EngineConnection, request: bytes) -> None:
        left.append(connection)

    async with RawEngine(keep) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]))
        server.expect(*engine.address, 500)
        await until(lambda: server.stats().upstream_idle > 3)
        await server.drain(Seconds(1.0))
        assert server.stats().upstream_idle == 0
        opened = engine.connections
        server.expect(*engine.address, 500)
        await asyncio.sleep(0)
        assert engine.connections == opened
