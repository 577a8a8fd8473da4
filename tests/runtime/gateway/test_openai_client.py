"""The official client against the data port: answers, streams, heartbeats, errors and its own retries."""

from __future__ import annotations

import json

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from events.units import Seconds
from runtime.core.policy import Heartbeat
from runtime.gateway.server import GatewayServer
from runtime.ports import Refusal, RefusalCode
from tests.support.gateway import Gateways
from tests.support.raw_engine import STREAM_HEAD, EngineConnection, RawEngine, answer, chunk
from tests.support.scripted_slots import ScriptedSlots

_COMPLETION = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "echo",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}  # fmt: skip


def _event(word: str) -> bytes:
    delta = {"index": 0, "delta": {"content": word}, "finish_reason": None}
    fields = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "echo", "choices": [delta]}
    return chunk(b"data: " + json.dumps(fields).encode() + b"\n\n")


async def _chat(connection: EngineConnection, request: bytes) -> None:
    if json.loads(request.partition(b"\r\n\r\n")[2]).get("stream"):
        await connection.send(STREAM_HEAD + _event("hel") + _event("lo"))
        await connection.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    else:
        await connection.send(answer(json.dumps(_COMPLETION).encode()))


def _client(server: GatewayServer, retries: int = 0) -> openai.AsyncOpenAI:
    base = f"http://127.0.0.1:{server.port}/v1"
    return openai.AsyncOpenAI(base_url=base, api_key="key", max_retries=retries)


_ASK = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


async def test_answers_and_streams(gateways: Gateways) -> None:
    """A plain answer, a stream, and the list of models."""
    async with RawEngine(_chat) as engine, _client(await gateways.start(ScriptedSlots([engine.address]))) as client:
        whole = await client.chat.completions.create(**_ASK)
        assert whole.choices[0].message.content == "hello"
        stream = await client.chat.completions.create(**_ASK, stream=True)
        assert "".join([part.choices[0].delta.content or "" async for part in stream]) == "hello"
        assert [model.id for model in (await client.models.list()).data] == ["echo"]
        assert (await client.models.retrieve("alias/echo")).id == "echo"


async def test_heartbeats_do_not_disturb_a_stream(gateways: Gateways) -> None:
    """Comments before the first event are invisible to the client."""
    async with RawEngine(_chat) as engine:
        slots = ScriptedSlots([engine.address], slots=0, heartbeat=Heartbeat(Seconds(0.03)))
        async with _client(await gateways.start(slots)) as client:
            stream = await client.chat.completions.create(**_ASK, stream=True)  # returns with the first heartbeat
            slots.slots = 1
            slots.grant()
            assert "".join([part.choices[0].delta.content or "" async for part in stream]) == "hello"


async def test_errors_are_the_client_s_own(gateways: Gateways) -> None:
    """An unknown model, a full queue and a failed start raise what OpenAI's API would raise."""
    slots = ScriptedSlots([("127.0.0.1", 1)])
    async with _client(await gateways.start(slots)) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(**{**_ASK, "model": "none"})
        assert missing.value.code == "model_not_found"
        slots.refusal = Refusal(RefusalCode.QUEUE_FULL, "full", Seconds(1.0))
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**_ASK)
        slots.refusal = Refusal(RefusalCode.START_FAILED, "no memory")
        with pytest.raises(openai.InternalServerError, match="no memory"):
            await client.chat.completions.create(**_ASK)


@pytest.mark.parametrize(("after", "tries"), [(None, 1), (Seconds(0.2), 3)])
async def test_retry_advice_is_followed(gateways: Gateways, after: Seconds | None, tries: int) -> None:
    """With its retries on, the client comes back where that helps, and not where it is pointless."""
    slots = ScriptedSlots([("127.0.0.1", 1)], refusal=Refusal(RefusalCode.START_FAILED, "m", after))
    async with _client(await gateways.start(slots), retries=2) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**_ASK)
    assert len(slots.tickets) == tries


async def test_a_replica_that_dies_in_a_stream_raises(gateways: Gateways) -> None:
    """The client's iteration ends with an error, not as if the answer were whole."""

    async def dying(connection: EngineConnection, request: bytes) -> None:
        await connection.send(STREAM_HEAD + _event("hel"))
        connection.close()

    async with RawEngine(dying) as engine, _client(await gateways.start(ScriptedSlots([engine.address]))) as client:
        stream = await client.chat.completions.create(**_ASK, stream=True)
        words: list[str | None] = []
        with pytest.raises(openai.APIError):
            await _collect(stream, words)
        assert words == ["hel"]


async def _collect(stream: openai.AsyncStream[ChatCompletionChunk], words: list[str | None]) -> None:
    async for part in stream:
        words += [choice.delta.content for choice in part.choices]
