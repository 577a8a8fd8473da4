"""An exchange cut at every byte: whoever goes away wherever, each lease comes back once and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from events.units import Seconds
from runtime.core.policy import Cancels, Timeouts
from tests.support.gateway import Gateways
from tests.support.raw_client import STREAM, RawClient, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, answer, chunk
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until

pytestmark = pytest.mark.slow  # hundreds of exchanges each
_REQUEST = post(STREAM)
_ANSWERS = {
    "length": answer(),
    "chunks": STREAM_HEAD + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n",
}


@pytest.mark.parametrize("wire", _ANSWERS.values(), ids=_ANSWERS.keys())
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_the_engine_goes_at_every_byte(gateways: Gateways, wire: bytes, reset: bool) -> None:
    """Cut short anywhere: 502 before the first relayed byte, a break after it; the whole answer only if it was."""
    upto = 0

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(wire[:upto])
        if upto < len(wire):
            if reset:
                connection.reset()
            else:
                connection.close()

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        server = await gateways.start(slots)
        head_end = wire.index(b"\r\n\r\n") + 4
        for upto in range(len(wire) + 1):
            before = len(slots.outcomes)
            client = await RawClient.open(server.port)
            reply = await client.ask(_REQUEST)
            if upto < head_end:
                assert reply.status == 502
            elif upto < len(wire):
                # A reset may overtake the head that was sent before it: then it is as if nothing had come.
                assert not reply.clean or (reset and reply.status == 502)
            else:
                assert (reply.status, reply.clean) == (200, True)
            await client.closed()
            assert len(slots.outcomes) - before in {1, 3}
            slots.assert_empty()


@pytest.mark.parametrize("cancels", list(Cancels))
async def test_the_client_goes_at_every_byte_of_its_request(gateways: Gateways, cancels: Cancels) -> None:
    """Cut anywhere in its request, also behind it: no lease is left, and no lease at all for what was not whole."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(_ANSWERS["chunks"])

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], cancels=cancels)
        server = await gateways.start(slots)
        for upto in range(len(_REQUEST) + 1):
            client = await RawClient.open(server.port)
            await client.send(_REQUEST[:upto])
            if upto % 2:
                client.reset()
            await client.closed()
        await until(lambda: server.stats().connections == 0 and not server.stats().running)
        assert len(slots.tickets) <= 1
        assert server.stats().buffered_bytes == 0


@pytest.mark.parametrize("wire", _ANSWERS.values(), ids=_ANSWERS.keys())
@pytest.mark.parametrize("cancels", [Cancels.ALWAYS, Cancels.NEVER])
async def test_the_client_goes_at_every_byte_of_its_answer(gateways: Gateways, wire: bytes, cancels: Cancels) -> None:
    """The engine sends a byte at a time; the client leaves after each of them in turn."""
    sent = asyncio.Event()
    upto = 0

    async def handle(connection: EngineConnection, request: bytes) -> None:
        for at in range(len(wire)):
            if at == upto:
                sent.set()
            await connection.send(wire[at : at + 1])
            await asyncio.sleep(0)

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], cancels=cancels)
        server = await gateways.start(slots)
        for upto in range(len(wire)):
            sent.clear()
            client = await RawClient.open(server.port)
            await client.send(_REQUEST)
            await sent.wait()
            if upto % 2:
                client.reset()
            await client.closed()
            await until(lambda upto=upto: len(slots.outcomes) == upto + 1)
            slots.assert_empty()


@pytest.mark.parametrize("steps", range(12))
async def test_the_budget_ends_at_every_callback(gateways: Gateways, steps: int) -> None:
    """Total budgets around the time that an exchange takes: whatever callback they meet, the lease comes back once."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        for at in range(0, len(_ANSWERS["chunks"]), 20):
            await connection.send(_ANSWERS["chunks"][at : at + 20])
            await asyncio.sleep(0.01)

    total = Seconds(steps * 0.012)
    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], timeouts=Timeouts(Seconds(5.0), Seconds(5.0), total))
        server = await gateways.start(slots)
        clients = [await gateways.client(server) for _ in range(8)]
        replies = await asyncio.gather(*(client.ask(_REQUEST) for client in clients))
        for reply in replies:
            assert reply.status == 504 or reply.body.endswith(b"[DONE]\n\n") or b"total_timeout" in reply.body
        assert len(slots.outcomes) == 8


async def test_lease_and_departure_in_one_turn(gateways: Gateways) -> None:
    """A slot that comes free in the very turn in which clients leave is neither lost nor given twice."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(answer())

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], slots=0)
        server = await gateways.start(slots)
        for round_number in range(20):
            clients = [await RawClient.open(server.port) for _ in range(10)]
            for client in clients:
                await client.send(_REQUEST)
            await until(lambda: len(slots.waiting) == 10)
            for client in clients[::2]:
                client.reset()
            for _ in range(round_number % 5):
                await asyncio.sleep(0)
            slots.slots = 3
            slots.grant()
            for client in clients[1::2]:
                assert (await client.reply()).status == 200
            for client in clients:
                with contextlib.suppress(ConnectionError):
                    await client.closed()
            await until(lambda: not slots.running and not slots.waiting)
            slots.slots = 0
