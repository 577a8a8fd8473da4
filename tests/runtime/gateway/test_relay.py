"""The plain path: a request is relayed, and its answer comes back byte for byte."""

from __future__ import annotations

import json

from runtime.ports import Ending
from tests.support.gateway import Gateways
from tests.support.raw_client import CHAT, STREAM, post
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, always, answer, chunk
from tests.support.scripted_slots import ScriptedSlots


async def test_json_request_is_relayed(gateways: Gateways) -> None:
    """A JSON request reaches the engine untouched, and the answer comes back with the gateway's headers."""
    body = b'{"ok":true,"usage":{"prompt_tokens":7,"completion_tokens":11}}'
    async with RawEngine(always(answer(body))) as engine:
        slots = ScriptedSlots([engine.address], cold=True, held_seconds=1.5)
        client = await gateways.client(await gateways.start(slots))
        for _ in range(3):
            reply = await client.ask(post(CHAT))
            assert (reply.status, reply.body) == (200, body)
            assert reply.headers["x-relume-replica"] == "echo-r1-0"
            assert reply.headers["x-relume-cold-start"] == "true"
            assert reply.headers["x-relume-held-ms"] == "1500"
        assert engine.connections == 1
        assert len({json.dumps(json.loads(request.split(b"\r\n\r\n", 1)[1])) for request in engine.requests}) == 1
        assert engine.requests[0].endswith(b"\r\n\r\n" + CHAT)
        _, outcome = slots.outcomes[0]
        assert outcome.ending is Ending.FINISHED
        assert (outcome.status, outcome.tokens_in, outcome.tokens_out) == (200, 7, 11)
        assert (outcome.bytes_in, outcome.bytes_out) == (len(CHAT), len(body))


async def test_stream_is_relayed(gateways: Gateways) -> None:
    """A chunked event stream arrives chunk by chunk and ends cleanly; usage in its last event is counted."""

    async def handle(connection: EngineConnection, request: bytes) -> None:
        await connection.send(STREAM_HEAD)
        for number in range(20):
            await connection.send(chunk(b'data: {"n":%d}\n\n' % number))
        await connection.send(chunk(b'data: {"usage":{"prompt_tokens":3,"completion_tokens":20}}\n\n'))
        await connection.send(chunk(b"data: [DONE]\n\n"))
        await connection.send(b"0\r\n\r\n")

    async with RawEngine(handle) as engine:
        slots = ScriptedSlots([engine.address])
        client = await gateways.client(await gateways.start(slots))
        for _ in range(2):
            reply = await client.ask(post(STREAM))
            assert reply.clean
            assert reply.body.count(b"data: ") == 22
            assert reply.headers["content-type"] == "text/event-stream"
        assert slots.tickets[0].stream
        assert engine.connections == 1
        assert slots.outcomes[0][1].tokens_out == 20
