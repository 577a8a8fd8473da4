"""What a client may send, and what of it an engine receives."""

from __future__ import annotations

import asyncio
import re

import pytest

from events.units import Seconds
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, post
from tests.support.raw_engine import RawEngine, always, answer
from tests.support.scripted_slots import ScriptedSlots
from tests.support.waiting import until

FORM = (
    b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b'Content-Type: audio/wav\r\n\r\n\x00\xff"model"\r\n'
    b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\necho\r\n--XX--\r\n'
)


def _form(path: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: %d\r\n\r\n%b"
        % (path, len(FORM), FORM)
    )


ROUTED = [
    post(CHAT),
    post(CHAT, b"/v1/completions?x=1"),
    post(CHAT, b"/v1/embeddings"),
    post(CHAT, b"/v1/responses"),
    post(CHAT, b"/v1/images/generations"),
    post(CHAT, b"/v1/rerank"),
    post(CHAT, b"/v2/rerank"),
    post(CHAT, b"http://gateway.example:80/v1/chat/completions"),
    post(b'{"model":"alias/echo"}'),
    _form(b"/v1/audio/transcriptions"),
    post(b"\x00\x01binary tensors", b"/v2/models/echo/infer"),
    post(b"{}", b"/v2/models/echo/versions/1/infer"),
    post(b"{}", b"/v2/models/alias%2Fecho/generate"),
    post(b'{"model":"another"}', b"/v1/chat/completions", b"x-relume-model: echo\r\n"),
    post(b"not json", b"/tokenize", b"X-Relume-Model: echo\r\n").replace(b"application/json", b"text/plain"),
    b"GET /props HTTP/1.1\r\nHost: t\r\nx-relume-model: echo\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", ROUTED, ids=range(len(ROUTED)))
async def test_every_openai_style_request_is_routed(gateways: Gateways, request_bytes: bytes) -> None:
    """Whatever names a model is relayed with its body byte for byte, and the model's name in a header."""
    async with RawEngine(always(answer())) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        reply = await client.ask(request_bytes)
        assert (reply.status, reply.body) == (200, b'{"ok":true}')
        head, _, body = engine.requests[0].partition(b"\r\n\r\n")
        assert body == request_bytes.partition(b"\r\n\r\n")[2]
        assert b"\r\nx-relume-model: echo\r\n" in head + b"\r\n"
        assert not head.startswith(b"POST http")


@pytest.mark.parametrize("path", [
    b"/sleep?level=2", b"/collective_rpc", b"/%73leep", b"/wake_up/", b"/server_info", b"//sleep", b"/%2fsleep",
    b"/sleep%0A", b"/sleep%0a/", b"/SLEEP", b"/fault_tolerance//apply", b"http://echo/sleep", b"http://echo//sleep",
])  # fmt: skip
async def test_orders_do_not_reach_the_engine(gateways: Gateways, path: bytes) -> None:
    """Whoever may ask a model may not tell its engine what to do, however the path is written."""
    async with RawEngine(always(answer())) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        reply = await client.ask(post(b"{}", path, b"x-relume-model: echo\r\n"))
        assert reply.status == 404
        assert engine.requests == []
        assert (await client.ask(post(CHAT))).status == 200


async def test_only_end_to_end_headers_reach_the_engine(gateways: Gateways) -> None:
    """Hop-by-hop headers, those that Connection lists, and the gateway's own stay behind; others go on as they came."""
    headers = (
        b"Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n"
        b"Proxy-Authorization: x\r\nX-Relume-Timeout: 5s\r\nX-Kept: a:b \xff\r\nAuthorization: Bearer k\r\n"
        b"tracestate: a=1\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
        b"x-request-id: mine-1\r\n"
    )
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        reply = await client.ask(post(CHAT, headers=headers))
        assert reply.headers["x-relume-request-id"] == "mine-1"
        head = engine.requests[0].partition(b"\r\n\r\n")[0].lower() + b"\r\n"
        for gone in (b"x-secret", b"keep-alive", b"\nte:", b"upgrade", b"proxy-", b"x-relume-timeout", b"expect"):
            assert gone not in head
        for kept in (
            b"x-kept: a:b \xff\r\n", b"authorization: bearer k\r\n", b"tracestate: a=1\r\n",
            b"x-request-id: mine-1\r\n",
            b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n",
            b"host: 127.0.0.1:%d\r\n" % engine.port,
        ):  # fmt: skip
            assert head.count(kept) == 1
        assert re.fullmatch("[0-9a-f]{16}", slots.tickets[0].caller)
        assert slots.tickets[0].deadline - slots.tickets[0].arrived_at == pytest.approx(5.0)


async def test_ids_are_made_where_there_are_none(gateways: Gateways) -> None:
    """Without a trace context, request id or key: new ones, the anonymous caller, unique tickets for repeated ids."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address], max_wait=Seconds(7.0))
        client = await gateways.client(await gateways.start(slots))
        replies = [await client.ask(post(CHAT, headers=b"x-request-id: bad id!\r\ntraceparent: 00-0-0-1\r\n"))]
        replies += [await client.ask(post(CHAT, headers=b"x-request-id: same\r\n")) for _ in range(2)]
        assert replies[0].headers["x-relume-request-id"] != "bad id!"
        assert replies[1].headers["x-relume-request-id"] == replies[2].headers["x-relume-request-id"] == "same"
        assert len({ticket.request for ticket in slots.tickets}) == 3
        assert slots.tickets[0].caller == "anonymous"
        assert slots.tickets[0].deadline - slots.tickets[0].arrived_at == pytest.approx(7.0)
        traces = re.findall(rb"traceparent: (00-[0-9a-f]{32}-[0-9a-f]{16}-00)\r\n", b"".join(engine.requests))
        assert len(set(traces)) == 3


@pytest.mark.parametrize("pieces", [1, 7, 4096])
async def test_bodies_in_pieces(gateways: Gateways, pieces: int) -> None:
    """However a body is cut into segments, also in chunks with extensions and trailers, it arrives whole and once."""
    filler = b"x" * 20_000
    body = b'{"model":"echo","input":"' + filler + b'"}'
    chunked = b"POST /v1/embeddings HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(
        b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in (body[at : at + 999] for at in range(0, len(body), 999))
    )
    chunked += b"0\r\nX-Trailer: 1\r\n\r\n"
    wire = post(body) + chunked
    step = max(1, len(wire) // pieces)
    async with RawEngine(always(answer())) as engine:
        client = await gateways.client(await gateways.start(ScriptedSlots([engine.address])))
        for at in range(0, len(wire), step):
            await client.send(wire[at : at + step])
        assert [(await client.reply()).status for _ in range(2)] == [200, 200]
        for request in engine.requests:
            head, _, received = request.partition(b"\r\n\r\n")
            assert received == body
            assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
            assert b"railer" not in head


async def test_pipelined_requests_are_answered_in_order(gateways: Gateways) -> None:
    """Requests sent ahead are run one after the other, local and relayed ones alike."""
    async with RawEngine(always(answer())) as engine:
        slots = ScriptedSlots([engine.address])
        server = await gateways.start(slots)
        client = await gateways.client(server)
        listing = b"GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n"
        missing = b"GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n"
        await client.send((post(CHAT) + listing + missing) * 300)
        for _ in range(300):
            assert (await client.reply()).body == b'{"ok":true}'
            assert b'"echo"' in (await client.reply()).body
            assert (await client.reply()).status == 404
        assert engine.connections == 1
        assert len(slots.outcomes) == 300


async def test_what_is_sent_ahead_is_bounded(gateways: Gateways) -> None:
    """While a request is held, a client that sends ever more is read no further; it is still noticed when it leaves."""
    slots = ScriptedSlots([("127.0.0.1", 1)], slots=0)
    client = await gateways.client(await gateways.start(slots))
    client.writer.transport.set_write_buffer_limits(high=0)
    await client.send(post(CHAT))
    block = post(CHAT) * 1000
    sent = 0
    try:
        async with asyncio.timeout(1.0):
            while sent < 64_000_000:
                client.writer.write(block)
                sent += len(block)
                await client.writer.drain()
    except TimeoutError:
        pass  # the gateway reads no more: as it should
    assert sent < 32_000_000
    assert len(slots.tickets) == 1
    client.reset()
    await until(lambda: slots.left)


async def test_expect_continue(gateways: Gateways) -> None:
    """A client that asks first is told to go on; one with too large a body, or for nobody, is refused before that."""
    async with RawEngine(always(answer())) as engine:
        server = await gateways.start(ScriptedSlots([engine.address]))
        client = await gateways.client(server)
        head, _, body = post(CHAT, headers=b"Expect: 100-Continue\r\n").partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert (await client.head())[0] == 100
        assert (await client.ask(body)).status == 200
        large = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
        reply = await client.ask(large)
        assert (reply.status, reply.informational, reply.headers["connection"]) == (413, [], "close")
        assert await client.at_end()
        nobody = await gateways.client(server)
        reply = await nobody.ask(large.replace(b"99999999", b"9").replace(b"/v1/completions", b"/other"))
        assert (reply.status, reply.informational) == (404, [])
        odd = await gateways.client(server)
        assert (await odd.ask(large.replace(b"100-continue", b"tea").replace(b"99999999", b"9"))).status == 417


async def test_a_refused_upload_still_gets_its_answer(gateways: Gateways) -> None:
    """A client that sends 100 MB without asking reads a 413 and not a reset."""
    server = await gateways.start(ScriptedSlots([("127.0.0.1", 1)]), linger_timeout=Seconds(5.0))
    client = await gateways.client(server)
    await client.send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 104857600\r\n\r\n")
    block = b"x" * 1_000_000
    for _ in range(100):
        await client.send(block)
    assert (await client.reply()).status == 413
    client.close()
    await until(lambda: server.stats().connections == 0)
    assert server.stats().buffered_bytes == 0
