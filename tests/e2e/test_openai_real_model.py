"""OpenAI's own client against a real language model: from zero, then warm. One relume for all tests of this module."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import openai
import pytest
import pytest_asyncio

from tests.support.needs import ROOT
from tests.support.openai_clients import HELLO, asynchronous, llamacpp, logged, reached, synchronously, together
from tests.support.running import Running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("model"),
    pytest.mark.asyncio(loop_scope="module"),
]

ALIAS = "HuggingFaceTB/SmolLM2-135M-Instruct"

# The model's own template knows no tools, and llama.cpp then drops them without a word; this one knows them.
TEMPLATE = (ROOT / "tests" / "support" / "tools.jinja").read_text(encoding="utf-8")
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


TEXT = llamacpp(
    options=f"chatTemplate: {json.dumps(TEMPLATE)}", extra=f"  aliases: [{ALIAS}]\n  coldStart: {{heartbeat: 100ms}}"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A text model with tools, and the same weights as an embedding model; both are at zero until they are asked."""
    documents = together(TEXT, llamacpp("vectors", options="embedding: true"))
    async with logged(tmp_path_factory.mktemp("real"), documents) as one:
        yield one


async def at_zero(relume: Running) -> None:
    """Declare the text model anew: another one of the same name, which has no replica."""
    async with relume.session.delete(f"{relume.admin}/models/smollm2") as answer:
        assert answer.status == 200, await answer.text()
    status, told = await relume.apply(TEXT)
    assert status == 200, told
    assert (await relume.status("smollm2"))["readyReplicas"] == 0


async def test_a_stream_from_zero_with_heartbeats(relume: Running) -> None:
    """A stream that wakes the model is whole: the heartbeats before its first token do not disturb the client."""
    await at_zero(relume)
    async with asynchronous(relume, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=ALIAS, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True},
            extra_headers={"x-request-id": "beating"},
        )  # fmt: skip
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("length", "stop")
    assert chunks[-1].usage is not None
    assert 1 <= chunks[-1].usage.completion_tokens <= 8
    (line,) = await reached(relume, 1, request="beating", status=200)
    assert line["held_ms"] > 200, "it did not wait long enough for a heartbeat"


async def test_a_whole_answer_from_zero(relume: Running) -> None:
    """A request that wakes the model is answered on its first try, with the client's own retries on (the default)."""
    await at_zero(relume)
    raw = await synchronously(
        relume,
        lambda client: client.chat.completions.with_raw_response.create(
            model="smollm2", messages=HELLO, max_tokens=4, extra_headers={"x-request-id": "from-zero"}
        ),
    )
    assert raw.retries_taken == 0
    assert raw.parse().choices[0].message.content
    assert raw.headers["x-relume-cold-start"] == "true"
    assert int(raw.headers["x-relume-held-ms"]) > 0
    assert raw.headers["x-relume-replica"].startswith("smollm2-")
    assert raw.headers["x-relume-request-id"] == "from-zero"
    (line,) = await reached(relume, 1, request="from-zero")
    assert line["status"] == 200


async def test_chat_completions_and_responses(relume: Running) -> None:
    """Each kind of text endpoint answers, whole and streamed, to the synchronous and to the asynchronous client."""

    def ask(client: openai.OpenAI) -> None:
        chat = client.chat.completions.create(model="smollm2", messages=HELLO, max_tokens=4)
        assert chat.usage is not None
        assert chat.usage.completion_tokens <= 4
        parts = client.completions.create(model=ALIAS, prompt="Once upon", max_tokens=4, stream=True)
        assert "".join(part.choices[0].text for part in parts if part.choices)
        assert client.responses.create(model="smollm2", input="Hi", max_output_tokens=4).output_text

    await synchronously(relume, ask)
    async with asynchronous(relume, max_retries=0) as client:
        assert (await client.completions.create(model="smollm2", prompt="Once upon", max_tokens=4)).choices[0].text
        stream = await client.responses.create(model="smollm2", input="Hi", max_output_tokens=4, stream=True)
        kinds = [event.type async for event in stream]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] in ("response.completed", "response.incomplete")


async def test_json_schema(relume: Running) -> None:
    """An answer that is asked for by schema follows it."""
    schema = {
        "type": "object",
        "properties": {"color": {"enum": ["red", "green", "blue"]}, "warm": {"type": "boolean"}},
        "required": ["color", "warm"],
        "additionalProperties": False,
    }
    async with asynchronous(relume) as client:
        answer = await client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "Name a colour."}], max_tokens=64, temperature=0,
            response_format={"type": "json_schema", "json_schema": {"name": "color", "schema": schema, "strict": True}},
        )  # fmt: skip
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), schema)


async def test_json_mode(relume: Running) -> None:
    """JSON mode gives an object, through the synchronous client's stream too."""

    def ask(client: openai.OpenAI) -> str:
        stream = client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "Give a short JSON object with the key a."}],
            max_tokens=200, temperature=0, response_format={"type": "json_object"}, stream=True,
        )  # fmt: skip
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    assert isinstance(json.loads(await synchronously(relume, ask)), dict)


def _turn(city: str) -> list[dict[str, Any]]:
    """A question about a city's weather that a tool answered; examples make so small a model call tools."""
    call = {"name": "weather", "arguments": json.dumps({"city": city})}
    return [
        {"role": "user", "content": f"What is the weather in {city}?"},
        {"role": "assistant", "tool_calls": [{"id": city, "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": city, "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]


async def test_tools(relume: Running) -> None:
    """A tool is called with the arguments that its schema asks for, whole and streamed."""
    messages: Any = [*_turn("London"), *_turn("Rome"), {"role": "user", "content": "What is the weather in Paris?"}]
    tools: Any = [WEATHER]
    async with asynchronous(relume) as client:
        whole = await client.chat.completions.create(
            model="smollm2", messages=messages, tools=tools, max_tokens=40, temperature=0
        )
        stream = await client.chat.completions.create(
            model="smollm2", messages=messages, tools=tools, max_tokens=40, temperature=0, stream=True
        )
        chunks = [chunk.choices[0] async for chunk in stream if chunk.choices]
    (call,) = whole.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    parts = [part.function for choice in chunks for part in choice.delta.tool_calls or [] if part.function]
    assert json.loads("".join(part.arguments or "" for part in parts)) == {"city": "Paris"}
    assert chunks[-1].finish_reason == whole.choices[0].finish_reason == "tool_calls"


async def test_embeddings(relume: Running) -> None:
    """An embedding model gives one vector a text, in their order; the same text gives the same vector."""
    async with asynchronous(relume) as client:
        answer = await client.embeddings.create(model="vectors", input=["a lamp", "the sea", "a lamp"])
    first, second, third = (entry.embedding for entry in answer.data)
    assert len(first) == len(second) > 100
    distance = sum(abs(one - other) for one, other in zip(first, third, strict=True))
    assert distance < 0.01 * sum(map(abs, first))
    assert sum(abs(one - other) for one, other in zip(first, second, strict=True)) > 10 * distance


async def test_too_long_a_prompt_is_the_engines_own_400(relume: Running) -> None:
    """The engine's own refusal reaches the client as a BadRequestError with the engine's words, and is not retried."""
    async with asynchronous(relume) as client:
        with pytest.raises(openai.BadRequestError, match="context size") as refused:
            await client.chat.completions.create(
                model="smollm2", messages=[{"role": "user", "content": "word " * 3000}],
                extra_headers={"x-request-id": "too-long"},
            )  # fmt: skip
    assert refused.value.type == "exceed_context_size_error"
    await reached(relume, 1, request="too-long", status=400)
