"""The simulated engine under OpenAI's own Python client."""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import AsyncIterator

import openai
import pytest

from tests.support.simulated import Client, simulated

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ASK = [{"role": "user", "content": "what is the weather?"}]


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    async with simulated("--time-to-first-token", "3ms", "--inter-token-latency", "1ms") as running:
        yield running


@pytest.fixture
async def client(engine: Client) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_chat_streamed_and_whole_say_the_same(client: openai.AsyncOpenAI) -> None:
    """With usage at the end of the stream."""
    whole = await client.chat.completions.create(model="sim", messages=ASK, max_tokens=7)
    stream = await client.chat.completions.create(
        model="sim", messages=ASK, max_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage == whole.usage


async def test_tool_calls_streamed_and_whole(client: openai.AsyncOpenAI) -> None:
    """The arguments come in pieces and are whole JSON in the end."""
    whole = await client.chat.completions.create(model="sim", messages=ASK, tools=TOOLS)
    call = whole.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "text"})
    async with client.chat.completions.stream(model="sim", messages=ASK, tools=TOOLS) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


async def test_json_schema_answers_parse(client: openai.AsyncOpenAI) -> None:
    """Into the shape asked for."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 4}}, "required": ["n"]}
    answer = await client.chat.completions.create(
        model="sim",
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content) == {"n": 4}


async def test_responses_streamed_and_whole(client: openai.AsyncOpenAI) -> None:
    """The streamed events add up to the response."""
    whole = await client.responses.create(model="sim", input="hello there")
    async with client.responses.stream(model="sim", input="hello there") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == whole.output_text
    assert len(whole.output_text.split()) == whole.usage.output_tokens == 16
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_responses_can_call_a_function(client: openai.AsyncOpenAI) -> None:
    """As a streamed item too."""
    tool = {"type": "function", "name": "weather", "parameters": TOOLS[0]["function"]["parameters"], "strict": True}
    async with client.responses.stream(model="sim", input="hello", tools=[tool]) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    assert (final.output[0].type, json.loads(final.output[0].arguments)) == ("function_call", {"city": "text"})


async def test_embeddings_are_unit_vectors(client: openai.AsyncOpenAI) -> None:
    """The client asks for base64 and unpacks it; the same text has the same vector."""
    answer = await client.embeddings.create(model="sim", input=["a", "b", "a"], dimensions=8)
    first, second, third = (item.embedding for item in answer.data)
    assert first == pytest.approx(third)
    assert first != second
    assert sum(value * value for value in first) == pytest.approx(1.0, abs=1e-5)
    plain = await client.embeddings.create(model="sim", input="a", dimensions=8, encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(first, abs=1e-6)


async def test_speech_is_a_wav_file(client: openai.AsyncOpenAI) -> None:
    """A tenth of a second a word."""
    spoken = await client.audio.speech.create(model="sim", voice="any", input="one two three")
    with wave.open(io.BytesIO(spoken.content)) as sound:
        assert sound.getnframes() / sound.getframerate() == pytest.approx(0.3)


async def test_completions_images_and_transcriptions(client: openai.AsyncOpenAI) -> None:
    """Each in the client's own types."""
    text = await client.completions.create(model="sim", prompt="one two", max_tokens=2)
    assert len(text.choices[0].text.split()) == 2
    image = await client.images.generate(model="sim", prompt="a pixel")
    assert base64.b64decode(image.data[0].b64_json).startswith(b"\x89PNG")
    sound = io.BytesIO(b"RIFF\r\n--not a boundary\r\n" * 10)
    sound.name = "a.wav"
    heard = await client.audio.transcriptions.create(model="sim", file=sound)
    assert len(heard.text.split()) == 16


async def test_models_lists_the_served_name(client: openai.AsyncOpenAI) -> None:
    """As vLLM does."""
    assert [model.id for model in (await client.models.list()).data] == ["sim"]


async def test_errors_are_the_clients_own_types(client: openai.AsyncOpenAI) -> None:
    """With the field that is wrong."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="sim", messages=[])
    assert caught.value.param == "messages"


async def test_rerank_and_kserve_infer(engine: Client) -> None:
    """Paths that OpenAI's client does not have."""
    ranked = await engine.post(
        "/v1/rerank", {"model": "sim", "query": "red fox", "documents": ["a dog", "a red fox", "red"], "top_n": 2}
    )
    assert [result["index"] for result in ranked.parsed["results"]] == [1, 2]
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2.5]}
    inferred = await engine.post("/v2/models/sim/infer", {"id": "7", "inputs": [tensor]})
    assert inferred.parsed["id"] == "7"
    assert inferred.parsed["outputs"][0] == tensor | {"name": "output_0"}
    for path in ("/v2/health/ready", "/v2/health/live", "/v2/models/sim", "/v2/models/sim/ready"):
        assert (await engine.get(path)).status == 200
