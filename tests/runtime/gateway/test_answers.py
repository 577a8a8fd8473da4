"""What an engine may answer, and what of it a client receives."""

from __future__ import annotations

import asyncio

import pytest

from runtime.ports import Ending
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, always, answer, chunk
from tests.support.scripted_slots import ScriptedSlots

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_informational_answers_are_swallowed(gateways: Gateways) -> None:
    """100 and 103 are between the engine and the gateway."""
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer(b"x")
    async with RawEngine(always(wire)) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(2):
            reply = await client.ask(post(CHAT))
            assert (reply.status, reply.informational, reply.body) == (200, [], b"x")
        assert engine.connections == 1


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_that_have_no_body(gateways: Gateways, status: bytes) -> None:
    """204 and 304 end with their head, whatever it says about lengths."""
    length = b"" if status.startswith(b"204") else b"Content-Length: 99\r\n"
    async with RawEngine(always(b"HTTP/1.1 %b\r\n%b\r\n" % (status, length))) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(2):
            assert (await client.ask(post(CHAT))).status == int(status[:3])
        assert engine.connections == 1


async def test_head_request(gateways: Gateways) -> None:
    """The answer to HEAD has the engine's Content-Length and no body, and the connection goes on."""
    async with RawEngine(always(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(2):
            reply = await client.ask(b"HEAD /v1/x HTTP/1.1\r\nHost: t\r\nx-relume-model: echo\r\n\r\n", head_only=True)
            assert reply.headers["content-length"] == "99"
        assert engine.connections == 1
        assert b"content-length" not in engine.requests[0].lower()


async def test_an_answer_that_ends_by_closing_is_put_into_chunks(gateways: Gateways) -> None:
    """HTTP/1.0 style answers become chunked ones, so the client sees their end and keeps its connection."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nfirst ")
        await connection.send(b"second")
        connection.close()

    async with RawEngine(handle) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(2):
            reply = await client.ask(post(CHAT))
            assert (reply.body, reply.clean) == (b"first second", True)
            assert reply.headers["transfer-encoding"] == "chunked"
        assert engine.connections == 2


@pytest.mark.parametrize("keep", [False, True])
async def test_http_1_0_clients(gateways: Gateways, keep: bool) -> None:
    """HTTP/1.0 gets no chunks: the end is the close; with a length, the connection stays if the client asks for it."""
    headers = b"Connection: keep-alive\r\n" if keep else b""
    async with RawEngine(always(answer(b"x"))) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        reply = await client.ask(post(CHAT, headers=headers, version=b"1.0"))
        assert reply.headers["connection"] == ("keep-alive" if keep else "close")
        if keep:
            assert (await client.ask(post(CHAT, headers=headers, version=b"1.0"))).status == 200
        else:
            assert await client.at_end()
    wire = CHUNKED + chunk(b"one") + b"3;ext=1\r\ntwo\r\n0\r\nTrailer: x\r\n\r\n"
    async with RawEngine(always(wire)) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        reply = await client.ask(post(CHAT, headers=headers, version=b"1.0"))
        assert "transfer-encoding" not in reply.headers
        assert (reply.body, reply.headers["connection"]) == (b"onetwo", "close")


async def test_chunks_are_relayed_byte_for_byte(gateways: Gateways) -> None:
    """Chunk sizes, extensions and trailers pass as they are, in whatever pieces they come."""
    wire = chunk(b"a" * 3000) + b"2;x=y\r\nbb\r\n" + b"0A\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n"

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(CHUNKED)
        for at in range(0, len(wire), 7):
            await connection.send(wire[at : at + 7])

    async with RawEngine(handle) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(2):
            await client.send(post(CHAT))
            await client.head()
            assert await client.reader.readexactly(len(wire)) == wire
        assert engine.connections == 1


async def test_only_end_to_end_headers_reach_the_client(gateways: Gateways) -> None:
    """Hop-by-hop headers of the engine, those its Connection lists, and forged gateway headers stay behind."""
    head = (
        b"HTTP/1.1 418 Teapot\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Relume-Replica: forged\r\n"
        b"X-Kept: yes\r\nSet-Cookie: a=1\r\n"
    )
    async with RawEngine(always(answer(b"x", head))) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        reply = await client.ask(post(CHAT))
        assert reply.status == 418
        assert reply.headers["x-kept"] == "yes"
        assert reply.headers["x-relume-replica"] == "echo-r1-0"
        assert not {"x-hop", "keep-alive", "connection"} & set(reply.headers)


BAD = {
    "both lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "odd coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare line ends": b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx\r\n\r\n",
    "not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "long head": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "long head without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
    "bad first chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("wire", BAD.values(), ids=BAD.keys())
async def test_answers_that_are_not_http(gateways: Gateways, wire: bytes) -> None:
    """An engine that breaks the protocol before anything was relayed: 502 with the reason, and no second try."""
    async with RawEngine(always(wire)) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(post(CHAT))
        assert reply.status == 502
        assert b"bad_engine_answer" in reply.body
        assert len(engine.requests) == 1
        assert [outcome.ending for _, outcome in slots.outcomes] == [Ending.BROKEN]


async def test_bytes_behind_an_answer_are_dropped(gateways: Gateways) -> None:
    """What an engine sends beyond its answer reaches nobody, and its connection is not used again."""
    async with RawEngine(always(answer(b"x") + answer(b"forged"))) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(3):
            assert (await client.ask(post(CHAT))).body == b"x"
        assert engine.connections == 3


async def test_connection_close_of_the_engine_is_honoured(gateways: Gateways) -> None:
    """An engine that says close gets a new connection next time, without an error in between."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    async with RawEngine(always(answer(b"x", head))) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for _ in range(3):
            assert (await client.ask(post(CHAT))).status == 200
        assert engine.connections == 3


async def test_an_error_answer_is_relayed_as_it_is(gateways: Gateways) -> None:
    """Whatever the status, an engine's answer is its own; the request has finished."""
    wire = b'HTTP/1.1 500 Oops\r\nContent-Length: 11\r\nx-should-retry: false\r\n\r\n{"error":1}'
    async with RawEngine(always(wire)) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(post(CHAT))
        assert (reply.status, reply.body) == (500, b'{"error":1}')
        assert slots.outcomes[0][1].ending is Ending.FINISHED
        assert slots.outcomes[0][1].status == 500


async def test_a_stream_with_a_bad_chunk_breaks(gateways: Gateways) -> None:
    """A malformed chunk in the middle is not relayed, and the answer does not end cleanly."""

    relayed = asyncio.Event()

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await relayed.wait()
        await connection.send(b"xyz\r\n")

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        await client.send(post(CHAT))
        await client.head()
        relayed.set()
        body, clean = await client.chunks()
        assert not clean
        assert body.startswith(b'data: 1\n\ndata: {"error":')
        assert b"xyz" not in body
        assert slots.outcomes[0][1].ending is Ending.BROKEN
