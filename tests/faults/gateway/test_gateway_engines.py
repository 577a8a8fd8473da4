"""Engines that fail while the data port needs them: refused, reset, stale, dead in the middle, silent, endless."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from events.units import Seconds
from runtime.core.policy import Timeouts
from runtime.ports import Ending
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, STREAM, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, always, answer, chunk
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until


def _endings(slots: ScriptedSlots) -> list[Ending]:
    return [outcome.ending for _, outcome in slots.outcomes]


def _closed_port() -> tuple[str, int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return ("127.0.0.1", probe.getsockname()[1])


async def test_a_refused_connection_is_tried_elsewhere(gateways: Gateways) -> None:
    """The lease is given back as unreachable, and the same request, with the same arrival, gets another replica."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([_closed_port(), _closed_port(), engine.address])
        client = await gateways.client(await gateways.start(slots))
        assert (await client.ask(post(CHAT))).status == 200
        assert _endings(slots) == [Ending.UNREACHABLE, Ending.UNREACHABLE, Ending.FINISHED]
        assert len({(t.request, t.arrived_at, t.deadline) for t in slots.tickets}) == 1


async def test_three_unreachable_replicas_are_enough(gateways: Gateways) -> None:
    """After three tries: 502 with the reason, worth a retry, and the client's connection goes on."""
    slots = ScriptedSlots([_closed_port()])
    client = await gateways.client(await gateways.start(slots))
    for _ in range(2):
        reply = await client.ask(post(CHAT))
        assert reply.status == 502
        assert json.loads(reply.body)["error"]["code"] == "replica_unreachable"
        assert reply.headers["x-should-retry"] == "true"
    assert _endings(slots) == [Ending.UNREACHABLE] * 6


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["nothing", "half a head"])
async def test_an_engine_that_resets_before_its_head(gateways: Gateways, said: bytes) -> None:
    """Broken before anything was relayed: the request goes to another replica."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(said)
        connection.reset()

    async with RawEngine(handle) as bad, RawEngine(always(answer())) as good:
        slots = ScriptedSlots([bad.address, good.address])
        client = await gateways.client(await gateways.start(slots))
        assert (await client.ask(post(CHAT))).status == 200
        assert _endings(slots) == [Ending.UNREACHABLE, Ending.FINISHED]


async def test_a_stale_pooled_connection_is_retried_once_on_a_new_one(gateways: Gateways) -> None:
    """An engine that closes idle connections as the next request is under way costs no lease and no error."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        if len(engine.requests) % 2:
            await connection.send(answer())
        else:
            connection.reset()  # the request was sent on a connection that the engine was about to close

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        for _ in range(3):
            assert (await client.ask(post(CHAT))).status == 200
        assert set(_endings(slots)) == {Ending.FINISHED}
        assert len(slots.outcomes) == 3


async def test_connections_closed_while_idle_are_not_used(gateways: Gateways) -> None:
    """A restarted engine is reached over new connections."""
    engine = RawEngine(always(answer()))
    slots = ScriptedSlots([])
    server = await gateways.start(slots)
    client = await gateways.client(server)
    for _ in range(3):
        async with engine:
            slots.addresses = [engine.address]
            assert (await client.ask(post(CHAT))).status == 200
            assert server.stats().upstream_idle == 1
        await until(lambda: server.stats().upstream_idle == 0)
    assert set(_endings(slots)) == {Ending.FINISHED}


async def test_idle_connections_are_bounded_in_number_and_age(gateways: Gateways) -> None:
    """The pool keeps as many as it may, and none for longer than it may."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address])
        server = await gateways.start(slots, max_upstream_idle=2, upstream_idle=Seconds(0.2))
        clients = [await gateways.client(server) for _ in range(6)]
        replies = await asyncio.gather(*(client.ask(post(CHAT)) for client in clients))
        assert {reply.status for reply in replies} == {200}
        assert server.stats().upstream_idle <= 2
        await until(lambda: server.stats().upstream_idle == 0)


class Dying:
    """Answers the head and some bytes, waits to be told, and dies."""

    def __init__(self, said: bytes, *, reset: bool) -> None:
        self.go = asyncio.Event()
        self._said = said
        self._reset = reset

    async def __call__(self, connection: EngineConnection, request: bytes) -> None:
        """Serve."""
        await connection.send(self._said)
        await self.go.wait()
        if self._reset:
            connection.reset()
        else:
            connection.close()


MIDDLES = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "within a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhello",
    "within a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6",
}


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("said", MIDDLES.values(), ids=MIDDLES.keys())
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_replica_that_dies_in_the_middle_is_visible(
    gateways: Gateways, said: bytes, version: bytes, reset: bool
) -> None:
    """Whatever the framing on either side, the client sees what came and then a break, never a clean end."""
    handle = Dying(said, reset=reset)
    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(CHAT, version=version))
        status, headers = await client.head()
        handle.go.set()
        clean, body = True, b""
        if headers.get("transfer-encoding") == "chunked":
            body, clean = await client.chunks()
        else:
            body, closed = await client.until_closed()
            clean = closed and "content-length" not in headers
        assert status == 200
        assert b"hello".startswith(body)
        assert not clean
        assert _endings(slots) == [Ending.BROKEN]


SSE_MIDDLES = {
    "between chunks": STREAM_HEAD + chunk(b"data: 1\n\n"),
    "within a chunk": STREAM_HEAD + chunk(b"data: 1\n\n") + b"1000\r\ndata: 2",
    "within a small chunk": STREAM_HEAD + chunk(b"data: 1\n\n") + b"20\r\ndata: 2",
    "close": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5000\r\n\r\ndata: 1\n\n",
}


@pytest.mark.parametrize("said", SSE_MIDDLES.values(), ids=SSE_MIDDLES.keys())
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_an_event_stream_breaks_with_an_error_event(gateways: Gateways, said: bytes, version: bytes) -> None:
    """In server-sent events the last thing is an OpenAI error object, in the client's framing, and no proper end."""
    handle = Dying(said, reset=True)
    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(STREAM, version=version))
        _, headers = await client.head()
        handle.go.set()
        if headers.get("transfer-encoding") == "chunked":
            body, clean = await client.chunks()
            assert not clean
        else:
            body, _ = await client.until_closed()
        assert body.startswith(b"data: 1\n\n")
        event = body.rstrip(b"\n").rpartition(b"\n\n")[2]
        assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "replica_failed"
        assert _endings(slots) == [Ending.BROKEN]


@pytest.mark.parametrize(
    ("timeouts", "code"),
    [
        (Timeouts(Seconds(0.1), Seconds(5.0), Seconds(5.0)), "first_byte_timeout"),
        (Timeouts(Seconds(5.0), Seconds(5.0), Seconds(0.1)), "total_timeout"),
    ],
)
async def test_budgets_before_the_first_byte(gateways: Gateways, timeouts: Timeouts, code: str) -> None:
    """A silent engine: 504 with the budget that ran out; the lease says that the engine may still be at it."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.closed_by_peer()

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], timeouts=timeouts)
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(post(CHAT))
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (504, code)
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.TIMED_OUT, False)


@pytest.mark.parametrize("endless", [False, True], ids=["idle", "total"])
async def test_budgets_between_and_after_bytes(gateways: Gateways, endless: bool) -> None:
    """Silence in the middle, and an answer without end: an error event, then a break."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(STREAM_HEAD)
        while endless:
            await connection.send(chunk(b"data: 1\n\n"))
            await asyncio.sleep(0.02)
        await connection.closed_by_peer()

    idle = 5.0 if endless else 0.15
    timeouts = Timeouts(Seconds(5.0), Seconds(idle), Seconds(0.3 if endless else 5.0))
    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], timeouts=timeouts)
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(post(STREAM))
        assert not reply.clean
        assert (b"total_timeout" if endless else b"idle_timeout") in reply.body
        assert (reply.body.count(b"data: 1") > 3) is endless
        _, outcome = slots.outcomes[0]
        assert (outcome.ending, outcome.engine_done) == (Ending.TIMED_OUT, False)
