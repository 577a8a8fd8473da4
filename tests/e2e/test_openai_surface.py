"""OpenAI's own client over all of its surface that relume routes, on the simulated engine. One relume for all tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from tests.support.openai_clients import HELLO, asynchronous, logged, reached, synchronously, together
from tests.support.running import Running, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(64)
WEATHER: openai.types.chat.ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """`echo`, which is asked everything, and `sleepy`, which takes a second to start and beats meanwhile."""
    sleepy = simulated(
        "sleepy", options="startTime: 1s, timeToFirstToken: 10ms, mode: echo",
        extra="  coldStart: {heartbeat: 100ms}\n  aliases: [org/Sleepy]",
    )  # fmt: skip
    echo = simulated(options="startTime: 100ms, timeToFirstToken: 5ms, interTokenLatency: 1ms", keepAlive="60s")
    async with logged(tmp_path_factory.mktemp("surface"), together(echo, sleepy)) as one:
        yield one


async def test_text_to_the_synchronous_client(relume: Running) -> None:
    """Chat, completions and responses answer the synchronous client, whole and streamed; tools and JSON mode too."""

    def ask(client: openai.OpenAI) -> None:
        assert client.chat.completions.create(model="echo", messages=HELLO).choices[0].message.content
        stream = client.chat.completions.create(
            model="echo", messages=HELLO, stream=True, max_tokens=5, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 5
        assert client.completions.create(model="echo", prompt="x").choices[0].text
        assert client.responses.create(model="echo", input="x").output_text
        with client.responses.stream(model="echo", input="x") as events:
            kinds = [event.type for event in events]
            assert events.get_final_response().output_text
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        called = client.chat.completions.create(model="echo", messages=HELLO, tools=[WEATHER], tool_choice="required")
        (call,) = called.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        told = client.chat.completions.create(model="echo", messages=HELLO, response_format={"type": "json_object"})
        assert (told.choices[0].message.content or "").startswith("{")

    await synchronously(relume, ask)


async def test_other_kinds_to_the_asynchronous_client(relume: Running) -> None:
    """Embeddings, images, transcription (multipart), speech, and rerank are routed by their model."""
    async with asynchronous(relume, max_retries=0) as client:
        vectors = await client.embeddings.create(model="echo", input=["a", "b", "a"])
        assert vectors.data[0].embedding == vectors.data[2].embedding != vectors.data[1].embedding
        image = await client.images.generate(model="echo", prompt="a lamp", response_format="b64_json")
        assert image.data is not None
        assert image.data[0].b64_json
        heard = await client.audio.transcriptions.create(model="echo", file=("a.wav", WAV))
        assert heard.text
        plain = await client.audio.transcriptions.create(model="echo", file=("a.wav", WAV), response_format="text")
        assert str(plain).strip()
        spoken = await client.audio.speech.create(model="echo", input="hello", voice="alloy")
        assert spoken.content.startswith(b"RIFF")
        ranked = await client.post(
            "/rerank", body={"model": "echo", "query": "a", "documents": ["b", "a"]}, cast_to=object
        )
        assert isinstance(ranked, dict)
        assert len(ranked["results"]) == 2


async def test_models_are_listed_as_declared(relume: Running) -> None:
    """`models.list` and `models.retrieve` tell of all declared models, also of one at zero, also by its alias."""
    async with asynchronous(relume) as client:
        models = {model.id: model async for model in await client.models.list()}
        assert set(models) == {"echo", "sleepy"}
        assert all(model.owned_by == "relume" and model.created > 0 for model in models.values())
        assert (await client.models.retrieve("org/Sleepy")).id == "sleepy"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("none")


async def test_heartbeats_do_not_disturb_the_stream(relume: Running) -> None:
    """A held stream carries comments with phase and ETA; the client's parser sees the chunks of the answer only."""
    url = f"{relume.gateway}/v1/chat/completions"
    body = {"model": "org/Sleepy", "messages": [{"role": "user", "content": "one two three"}], "stream": True}
    async with asynchronous(relume, max_retries=0) as client:
        raw = asyncio.create_task(_lines(relume, url, body))
        stream = await client.chat.completions.create(
            model="sleepy", messages=[{"role": "user", "content": "one two three"}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    lines = await raw
    assert text == "one two three"
    beats = [line for line in lines if line.startswith(":")]
    assert len(beats) >= 3
    assert beats[0].startswith(": held phase=")
    assert lines.index(beats[-1]) < min(number for number, line in enumerate(lines) if line.startswith("data:"))
    assert lines[-2:] == ["data: [DONE]", ""]


async def _lines(relume: Running, url: str, body: object) -> list[str]:
    """A streamed answer's lines as they came."""
    async with relume.session.post(url, json=body) as answer:
        assert answer.status == 200
        return [*(await answer.text()).rstrip("\n").split("\n"), ""]


async def test_headers_of_an_answer(relume: Running) -> None:
    """Each answer carries our headers, streamed or not; the client's request id and trace reach the engine's side."""
    async with asynchronous(relume) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="echo", messages=HELLO, extra_headers={"x-request-id": "mine-1"}
        )
        assert raw.headers["x-relume-request-id"] == "mine-1"
        assert raw.headers["x-relume-replica"].startswith("echo-")
        assert raw.headers["x-relume-cold-start"] in ("true", "false")
        assert int(raw.headers["x-relume-held-ms"]) >= 0
        # The simulated engine answers with the id that it was given; the client shows it to its user.
        assert raw.parse()._request_id == "mine-1"
        async with client.chat.completions.with_streaming_response.create(
            model="echo", messages=HELLO, stream=True, extra_headers={"x-request-id": "mine-2"}
        ) as streamed:
            assert streamed.headers["x-relume-request-id"] == "mine-2"
            assert streamed.headers["content-type"].startswith("text/event-stream")
            await streamed.read()
    await reached(relume, 1, request="mine-1", status=200, model="echo")
    await reached(relume, 1, request="mine-2", status=200, model="echo")
