"""Memory: of held requests, and over many requests."""

from __future__ import annotations

import asyncio
import gc

import psutil
import pytest

from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, STREAM, RawClient, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, answer, chunk
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until

_NOBODY = b'{"model":"none"}'
pytestmark = pytest.mark.slow


class _Silent(asyncio.Protocol):
    """The smallest client there is, so that the memory measured is the gateway's."""


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def test_memory_of_held_requests(gateways: Gateways) -> None:
    """A held request costs at most 8 KiB beyond its body (and here also the client half of its connection)."""
    count = 2000
    body = b'{"model":"echo","input":"' + b"x" * 4000 + b'"}'
    slots = ScriptedSlots([("127.0.0.1", 1)], slots=0)
    server = await gateways.start(slots)
    loop = asyncio.get_running_loop()
    wire = post(body, headers=b"Authorization: Bearer key\r\nAccept: */*\r\nUser-Agent: test\r\n")
    transports = []
    before = _resident()
    try:
        for made in range(1, count + 1):
            transport, _ = await loop.create_connection(_Silent, "127.0.0.1", server.port)
            transports.append(transport)
            transport.write(wire)
            if made % 50 == 0:
                await until(lambda made=made: server.stats().buffered_bytes == made * len(body), 60)
        await until(lambda: server.stats().held == count, 60)
        each = (_resident() - before) / count
    finally:
        for transport in transports:
            transport.abort()
    await until(lambda: server.stats().connections == 0, 60)
    assert each <= 8192 + len(body) + 4096  # 4 KiB for the client's transport and the test's ticket


async def test_memory_is_flat_over_many_requests(gateways: Gateways) -> None:
    """20,000 requests of several kinds leave no memory, connection, timer or task behind."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        if b'"stream":true' in request:
            await connection.send(STREAM_HEAD + chunk(b"data: 1\n\n") + b"0\r\n\r\n")
        else:
            await connection.send(answer())

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], slots=4)
        server = await gateways.start(slots)
        client = await gateways.client(server)

        async def some(count: int) -> None:
            for number in range(count):
                kind = number % 4
                if kind == 3 and number % 40 == 3:
                    leaving = await RawClient.open(server.port)
                    await leaving.send(post(STREAM))
                    leaving.reset()
                else:
                    assert (await client.ask(post((CHAT, STREAM, _NOBODY, CHAT)[kind]))).status in {200, 404}
                engine.requests.clear()
                slots.outcomes.clear()
                slots.tickets.clear()

        await some(4000)
        tasks, before = len(asyncio.all_tasks()), _resident()
        await some(16_000)
        grown = _resident() - before
        await until(lambda: server.stats().connections == 1)
        assert grown < 3_000_000, f"{grown / 16_000:.0f} bytes a request are left"
        assert len(asyncio.all_tasks()) <= tasks + 1
        assert server.timers <= 2


async def test_a_large_answer_is_not_kept(gateways: Gateways) -> None:
    """Hundreds of megabytes of answers pass through a few megabytes of memory."""
    block = b"x" * 65_536
    size = len(block) * 400

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(400):
            await connection.send(block)

    async with RawEngine(handle) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]))
        client = await gateways.client(server)
        client.reader._limit = 1 << 18

        async def take() -> None:
            await client.send(post(CHAT))
            await client.head()
            left = size
            while left:
                left -= len(await client.reader.read(min(left, 1 << 18)))

        await take()
        before = _resident()
        for _ in range(10):
            await take()
        assert _resident() - before < size
