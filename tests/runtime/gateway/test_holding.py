"""Held requests: the desk's refusals, and heartbeats while a model loads."""

from __future__ import annotations

import asyncio
import json

import pytest

from events.units import Seconds
from runtime.core.policy import Heartbeat
from runtime.ports import Ending, Refusal, RefusalCode
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, STREAM, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, always, answer, chunk
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until

_NOWHERE = [("127.0.0.1", 1)]
_BEAT = Heartbeat(Seconds(0.05))
_EVENTS = STREAM_HEAD + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

REFUSALS = [
    (Refusal(RefusalCode.UNKNOWN_MODEL, "m"), 404, None),
    (Refusal(RefusalCode.QUEUE_FULL, "m", Seconds(2.1)), 429, "3"),
    (Refusal(RefusalCode.IMPOSSIBLE, "m", Seconds(0.0)), 503, "1"),
    (Refusal(RefusalCode.START_FAILED, "the engine said no"), 503, None),
    (Refusal(RefusalCode.START_FAILED, "m", Seconds(40.0)), 503, "40"),
    (Refusal(RefusalCode.DEADLINE, "m"), 504, None),
    (Refusal(RefusalCode.SHUTTING_DOWN, "m", Seconds(5.0)), 503, "5"),
    (Refusal(RefusalCode.DELETED, "m"), 404, None),
]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("refusal", "status", "after"), REFUSALS)
async def test_refusals(gateways: Gateways, refusal: Refusal, status: int, after: str | None, at_once: bool) -> None:
    """Each refusal has its status, the desk's words in an OpenAI error object, and advice about a retry."""
    slots = ScriptedSlots(_NOWHERE, slots=0, refusal=refusal if at_once else None)
    client = await gateways.client(await gateways.start(slots))
    for _ in range(2):
        await client.send(post(CHAT))
        if not at_once:
            await until(lambda: slots.waiting)
            slots.refuse_waiting(refusal)
        reply = await client.reply()
        error = json.loads(reply.body)["error"]
        assert (reply.status, reply.headers.get("retry-after")) == (status, after)
        assert (error["message"], error["code"], error["param"]) == (refusal.message, refusal.code.value, None)
        assert reply.headers["x-should-retry"] == ("false" if after is None else "true")
        assert "x-relume-request-id" in reply.headers


async def test_a_desk_that_forgets_a_request(gateways: Gateways) -> None:
    """A held request whose refusal never comes ends by itself soon after its deadline."""
    slots = ScriptedSlots(_NOWHERE, slots=0, max_wait=Seconds(0.05))
    client = await gateways.client(await gateways.start(slots, hold_grace=Seconds(0.1)))
    assert (await client.ask(post(CHAT))).status == 504
    assert slots.left


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize(
    "wire",
    [
        _EVENTS,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\ndata: 1\n\ndata: [DONE]\n\n",
        answer(b"data: 1\n\ndata: [DONE]\n\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"),
    ],
    ids=["chunks", "close", "length"],
)
async def test_heartbeats_then_the_stream(gateways: Gateways, version: bytes, wire: bytes) -> None:
    """Comments commit the 200; the engine's events follow in the same answer, whatever its framing, to a clean end."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        assert b"accept-encoding" not in request.lower()
        await connection.send(wire)
        if b"ength: " not in wire and b"chunked" not in wire:
            connection.close()

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address], slots=0, heartbeat=_BEAT)
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(STREAM, headers=b"Accept-Encoding: gzip\r\n", version=version))
        status, headers = await client.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        slots.slots = 1
        slots.grant()
        body, clean = await (client.until_closed() if version == b"1.0" else client.chunks())
        assert clean
        assert body.startswith(b": held phase=load eta=2.1s ahead=0\n\n")
        assert body.endswith(b"\n\ndata: 1\n\ndata: [DONE]\n\n")
        assert slots.outcomes[0][1].ending is Ending.FINISHED


@pytest.mark.parametrize(("heartbeat", "body"), [(None, STREAM), (_BEAT, CHAT)])
async def test_no_heartbeats_unasked(gateways: Gateways, heartbeat: Heartbeat | None, body: bytes) -> None:
    """Only a streamed request of a model that allows it gets comments."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address], slots=0, heartbeat=heartbeat)
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(body))
        await asyncio.sleep(0.2)  # several heartbeats
        slots.slots = 1
        slots.grant()
        assert (await client.reply()).body == b'{"ok":true}'


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_refusal_after_heartbeats(gateways: Gateways, version: bytes) -> None:
    """The 200 is sent already, so the refusal is an error event, and the stream breaks."""
    slots = ScriptedSlots(_NOWHERE, slots=0, heartbeat=_BEAT)
    client = await gateways.client(await gateways.start(slots))
    await client.send(post(STREAM, version=version))
    await client.head()
    slots.refuse_waiting(Refusal(RefusalCode.START_FAILED, "no memory"))
    body, clean = await (client.until_closed() if version == b"1.0" else client.chunks())
    assert clean is (version == b"1.0")  # there, the event alone tells
    event = json.loads(body.rstrip(b"\n").rpartition(b"\n\n")[2].removeprefix(b"data: "))
    assert event["error"]["message"] == "no memory"


_GZIPPED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
ERRORS = [
    (answer(b'{"error":{"message":"too long a prompt"}}', b"HTTP/1.1 400 Bad\r\n"), "too long a prompt"),
    (b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n4\r\noops\r\n0\r\n\r\n", "status 500"),
    (answer(b'{"choices":[]}'), "status 200"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        "200",
    ),
]


@pytest.mark.parametrize(("wire", "words"), ERRORS)
async def test_an_engine_error_after_heartbeats(gateways: Gateways, wire: bytes, words: str) -> None:
    """What is not an event stream cannot follow the comments: it becomes an error event."""
    async with RawEngine(always(wire)) as engine:
        slots = ScriptedSlots([engine.address], slots=0, heartbeat=_BEAT)
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(STREAM))
        await client.head()
        slots.slots = 1
        slots.grant()
        body, clean = await client.chunks()
        assert not clean
        event = json.loads(body.rstrip(b"\n").rpartition(b"\n\n")[2].removeprefix(b"data: "))
        assert words in event["error"]["message"]
        assert slots.outcomes[0][1].ending is Ending.FINISHED


async def test_unreachable_replicas_after_heartbeats(gateways: Gateways) -> None:
    """A committed stream whose replicas cannot be reached ends with the reason as an event."""
    slots = ScriptedSlots(_NOWHERE, slots=0, heartbeat=_BEAT)
    client = await gateways.client(await gateways.start(slots))
    await client.send(post(STREAM))
    await client.head()
    slots.slots = 1
    slots.grant()
    body, clean = await client.chunks()
    assert not clean
    assert b"replica_unreachable" in body


async def test_hundreds_of_held_requests_are_answered_in_order(gateways: Gateways) -> None:
    """A burst to a model at zero waits as one queue and is served within the slots, everybody once."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address], slots=0, cold=True, held_seconds=0.5)
        server = await gateways.start(slots)
        clients = [await gateways.client(server) for _ in range(300)]
        for client in clients:
            await client.send(post(CHAT))
        await until(lambda: server.stats().held == 300)
        slots.slots = 8
        slots.grant()
        replies = await asyncio.gather(*(client.reply() for client in clients))
        assert {reply.status for reply in replies} == {200}
        assert len(engine.requests) == 300
        assert engine.connections <= 8
        assert sorted(lease.request for lease, _ in slots.outcomes) == sorted(t.request for t in slots.tickets)
