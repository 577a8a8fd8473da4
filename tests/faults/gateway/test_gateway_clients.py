"""Clients that leave: while they wait, before the first byte, in the middle; and what the engine and the desk learn."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from events.units import Seconds
from runtime.core.policy import Cancels, Timeouts
from runtime.ports import Ending
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, STREAM, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, always, answer, chunk
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until


async def test_leaving_the_queue(gateways: Gateways) -> None:
    """A client that leaves while it waits leaves its ticket; nothing was sent and nothing is leased."""
    slots = ScriptedSlots([("127.0.0.1", 1)], slots=0)
    server = await gateways.start(slots)
    client = await gateways.client(server)
    await client.send(post(CHAT))
    await until(lambda: slots.waiting)
    client.close()
    await until(lambda: slots.left)
    assert server.stats().held == 0
    assert not slots.outcomes


class Slow:
    """Sends `first`, waits for `go`, sends `rest`; notices when the gateway closes before that."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        self.go = asyncio.Event()
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._first = first
        self._rest = rest

    async def __call__(self, connection: EngineConnection, request: bytes) -> None:
        """Serve."""
        await connection.send(self._first)
        self.asked.set()
        closed = asyncio.ensure_future(connection.closed_by_peer())
        going = asyncio.ensure_future(self.go.wait())
        done, pending = await asyncio.wait({closed, going}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if closed in done:
            self.cancelled.set()
        else:
            await connection.send(self._rest)


WHEN = {"before the first byte": b"", "in the middle": STREAM_HEAD + chunk(b"data: 1\n\n")}
REST = {"before the first byte": answer(), "in the middle": chunk(b"data: 2\n\n") + b"0\r\n\r\n"}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(
    ("cancels", "body"), [(Cancels.ALWAYS, CHAT), (Cancels.ALWAYS, STREAM), (Cancels.STREAMS, STREAM)]
)
async def test_leaving_cancels_where_the_engine_can(
    gateways: Gateways, when: str, cancels: Cancels, body: bytes
) -> None:
    """The connection to the engine closes at once, and the lease says that the engine may not be done yet."""
    engine_side = Slow(WHEN[when], REST[when])
    async with RawEngine(engine_side) as engine:
        slots = ScriptedSlots([engine.address], cancels=cancels)
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(body))
        await engine_side.asked.wait()
        if WHEN[when]:
            await client.head()
        client.close()
        async with asyncio.timeout(5):
            await engine_side.cancelled.wait()
        await until(lambda: slots.outcomes)
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.CLIENT_LEFT, False)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("cancels", "body"), [(Cancels.STREAMS, CHAT), (Cancels.NEVER, STREAM)])
async def test_leaving_waits_where_the_engine_cannot_cancel(
    gateways: Gateways, when: str, cancels: Cancels, body: bytes
) -> None:
    """The answer is read to its end for nobody, and only then the slot is free; the connection is used again."""
    engine_side = Slow(WHEN[when], REST[when])
    async with RawEngine(engine_side) as engine:
        slots = ScriptedSlots([engine.address], cancels=cancels)
        server = await gateways.start(slots)
        client = await gateways.client(server)
        await client.send(post(body))
        await engine_side.asked.wait()
        if WHEN[when]:
            await client.head()
        client.close()
        await until(lambda: server.stats().connections == 0)
        assert server.stats().running == 1
        assert not slots.outcomes
        engine_side.go.set()
        await until(lambda: slots.outcomes)
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.CLIENT_LEFT, True)
        assert server.stats().upstream_idle == 1


async def test_reading_for_nobody_is_bounded(gateways: Gateways) -> None:
    """An engine that does not finish by the total budget is timed out, though its client left long ago."""
    engine_side = Slow(b"", b"")
    timeouts = Timeouts(Seconds(0.1), Seconds(0.1), Seconds(0.4))
    async with RawEngine(engine_side) as engine:
        slots = ScriptedSlots([engine.address], cancels=Cancels.NEVER, timeouts=timeouts)
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(CHAT))
        await engine_side.asked.wait()
        client.reset()
        await until(lambda: slots.outcomes)
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.TIMED_OUT, False)


async def test_leaving_while_the_gateway_connects(gateways: Gateways) -> None:
    """Nothing was sent, so the engine has nothing to be done with."""
    with socket.socket() as full, contextlib.ExitStack() as fillers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # a full backlog: one more connection is neither accepted nor refused
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        slots = ScriptedSlots([full.getsockname()])
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(CHAT))
        await until(lambda: slots.tickets)
        client.reset()
        await until(lambda: slots.outcomes)
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.CLIENT_LEFT, True)


async def test_connecting_is_bounded(gateways: Gateways) -> None:
    """A replica that does not even accept is unreachable after the connect timeout."""
    with socket.socket() as full, contextlib.ExitStack() as fillers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        slots = ScriptedSlots([full.getsockname()])
        client = await gateways.client(await gateways.start(slots, connect_timeout=Seconds(0.1)))
        assert (await client.ask(post(CHAT))).status == 502
        assert [outcome.ending for _, outcome in slots.outcomes] == [Ending.UNREACHABLE] * 3


async def test_a_client_that_stops_reading_is_let_go(gateways: Gateways) -> None:
    """The engine is paused, not buffered; after the stall timeout the client counts as gone and the engine is told."""
    sent = 0

    async def handle(connection: EngineConnection, request: bytes) -> None:
        nonlocal sent
        await connection.send(STREAM_HEAD)
        block = chunk(b"x" * 60_000)
        while True:
            await connection.send(block)
            sent += len(block)

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        server = await gateways.start(slots, stall_timeout=Seconds(0.5))
        client = await gateways.client(server)
        client.reader._transport.pause_reading()
        await client.send(post(STREAM))
        await until(lambda: slots.outcomes)
        assert sent < 40_000_000  # what the kernel's socket buffers and the gateway's water mark take
        _, outcome = slots.outcomes[0]
        assert outcome.ending is Ending.CLIENT_LEFT


async def test_a_slow_client_gets_everything(gateways: Gateways) -> None:
    """A client that reads slowly pauses the engine again and again, and gets every byte without an idle timeout."""
    size = 12_000_000
    data = bytes(range(256)) * (size // 256)
    timeouts = Timeouts(Seconds(5.0), Seconds(0.2), Seconds(30.0))
    async with RawEngine(always(answer(data))) as engine:
        slots = ScriptedSlots([engine.address], timeouts=timeouts)
        client = await gateways.client(await gateways.start(slots))
        client.reader._transport.pause_reading()
        await client.send(post(CHAT))
        await asyncio.sleep(0.5)  # longer than the engine's idle budget
        client.reader._transport.resume_reading()
        reply = await client.reply()
        assert reply.body == data
        assert slots.outcomes[0][1].ending is Ending.FINISHED
