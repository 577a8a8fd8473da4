"""Caps and deadlines of the client's side: each refuses with a status, in bounded memory."""

from __future__ import annotations

import asyncio

import pytest

from events.units import Bytes, Seconds
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, post
from tests.support.raw_engine import RawEngine, always, answer
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until

_NOWHERE = [("127.0.0.1", 1)]


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nHost: t\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nHost: t\r\nX: " + b"a" * 70_000, 431),
        (b"GET /v1/models HTTP/1.1\r\nHost: t\r\n" + b"X: 1\r\n" * 101 + b"\r\n", 431),
        (b"GET /" + b"a" * 70_000, 431),
        (b"POST /v1/x HTTP/1.1\r\nHost: t\r\nContent-Length: 33554433\r\n\r\n", 413),
    ],
    ids=["long header", "endless header", "many headers", "endless path", "large body"],
)
async def test_size_caps(gateways: Gateways, wire: bytes, status: int) -> None:
    """Heads and bodies beyond their caps are refused with 431 and 413, and the connection is closed."""
    client = await gateways.client(await gateways.start(ScriptedSlots(_NOWHERE)))
    reply = await client.ask(wire)
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert await client.at_end()


async def test_a_chunked_body_is_capped_as_it_comes(gateways: Gateways) -> None:
    """Chunks that never end are refused once they pass the cap, and what was buffered is let go."""
    server = await gateways.start(ScriptedSlots(_NOWHERE), max_body_bytes=Bytes(100_000))
    client = await gateways.client(server)
    await client.send(b"POST /v1/x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(30):
        await client.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
    assert (await client.reply()).status == 413
    assert server.stats().buffered_bytes == 0


async def test_all_bodies_together_are_capped(gateways: Gateways) -> None:
    """When bodies that wait fill the memory meant for them, the next is refused with 503 and told to retry."""
    slots = ScriptedSlots(_NOWHERE, slots=0)
    server = await gateways.start(slots, max_buffered_bytes=Bytes(150_000))
    body = b'{"model":"echo","input":"' + b"x" * 100_000 + b'"}'
    first = await gateways.client(server)
    await first.send(post(body))
    await until(lambda: slots.waiting)
    second = await gateways.client(server)
    reply = await second.ask(post(body))
    assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (503, "1", "true")
    first.close()
    await until(lambda: server.stats().buffered_bytes == 0)


async def test_slow_heads_and_bodies_time_out(gateways: Gateways) -> None:
    """A head or body that trickles is answered 408 at its deadline (slowloris); an idle one is closed silently."""
    server = await gateways.start(
        ScriptedSlots(_NOWHERE), head_timeout=Seconds(0.15), body_grace=Seconds(0.15), idle_timeout=Seconds(0.3)
    )
    head, body, idle, small = [await gateways.client(server) for _ in range(4)]
    await head.send(b"POST /v1/x HTTP/1.1\r\nHo")
    await body.send(b"POST /v1/x HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{")
    await small.send(b"\r")
    for client in (head, body, small):
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")
    assert await idle.at_end()


async def test_a_body_that_keeps_its_rate_may_take_long(gateways: Gateways) -> None:
    """Progress moves the deadline of a body: at the set rate it may take longer than the grace."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]), body_grace=Seconds(0.2), body_rate=1000)
        client = await gateways.client(server)
        body = b'{"model":"echo","input":"' + b"x" * 1000 + b'"}'
        wire = post(body)
        await client.send(wire[:-100])
        await asyncio.sleep(0.5)  # longer than the grace, shorter than the grace and 900 bytes at 1,000 a second
        assert (await client.ask(wire[-100:])).status == 200


async def test_connections_are_bounded(gateways: Gateways) -> None:
    """One connection too many is told so; when another closes there is room again."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]), max_connections=2)
        clients = [await gateways.client(server) for _ in range(2)]
        for client in clients:
            assert (await client.ask(post(CHAT))).status == 200
        extra = await gateways.client(server)
        assert (await extra.reply()).status == 503
        assert server.stats().refused_connections == 1
        extra.close()
        clients[0].close()
        await until(lambda: server.stats().connections == 1)
        assert (await (await gateways.client(server)).ask(post(CHAT))).status == 200
