"""How relume's refusals reach a user of OpenAI's client: which exception, and how often it asks again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.openai_clients import (
    HELLO,
    access_lines,
    asynchronous,
    levels,
    logged,
    reached,
    synchronously,
    together,
)
from tests.support.running import Running, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

NARROW = """  slots: 1
  coldStart: {hold: {maxRequests: 1}}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A model for each way to say no."""
    documents = together(
        simulated(options="timeToFirstToken: 5ms", keepAlive="60s"),
        simulated("narrow", options="maxTokens: 1, timeToFirstToken: 3s", extra=NARROW, maxReplicas=1),
        simulated("slow-start", options="startTime: 1500ms", keepAlive="300ms", stableWindow="1s"),
        simulated("never", options="startTime: 20s"),
        simulated("broken", options="failStart: load", extra="  coldStart: {heartbeat: 100ms}"),
        simulated("failing", options="failureRate: 100, failureTypes: [server_error]"),
        simulated("cut", options="breakRate: 100, interTokenLatency: 5ms"),
    )
    async with logged(tmp_path_factory.mktemp("errors"), documents, "--max-body-bytes", "256Ki") as one:
        yield one


async def chat(client: openai.AsyncOpenAI, model: str, mark: str, **more: Any) -> Any:
    """One chat completion whose line in the access log can be found by `mark`."""
    headers = {"x-request-id": mark} | more.pop("extra_headers", {})
    return await client.chat.completions.create(model=model, messages=HELLO, extra_headers=headers, **more)


async def streamed(client: openai.AsyncOpenAI, model: str, mark: str, chunks: list[Any]) -> None:
    """A streamed chat completion read to its end; what came is in `chunks`, also when it raises."""
    async for chunk in await chat(client, model, mark, stream=True):
        chunks.append(chunk)  # noqa: PERF401 - an `extend` would lose what came before the error


async def test_an_unknown_model(relume: Running) -> None:
    """NotFoundError with OpenAI's code, from both clients, and no second try."""
    async with asynchronous(relume) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            await chat(client, "nobody", "unknown-1")
    assert refused.value.code == "model_not_found"
    assert refused.value.param == "model"
    await reached(relume, 1, request="unknown-1", status=404)

    def ask(client: openai.OpenAI) -> None:
        client.embeddings.create(model="nobody", input="x", extra_headers={"x-request-id": "unknown-2"})

    with pytest.raises(openai.NotFoundError):
        await synchronously(relume, ask)
    await reached(relume, 1, request="unknown-2", status=404)


async def test_a_full_hold_queue(relume: Running) -> None:
    """RateLimitError with Retry-After: at once with `max_retries=0`; the client's own retries find a place later."""
    waiting = []
    for wanted in ((1, 0), (1, 1)):  # one in the only slot, one in the only place of the queue
        waiting.append(asyncio.create_task(relume.chat("narrow")))
        await relume.until(levels(*wanted), "narrow")
    async with asynchronous(relume, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await chat(client, "narrow", "full-once")
        assert refused.value.code == "hold_queue_full"
        assert refused.value.response.headers["x-should-retry"] == "true"
        assert int(refused.value.response.headers["retry-after"]) >= 1
        assert (await chat(client.with_options(max_retries=10), "narrow", "full-retried")).choices
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200]
    await reached(relume, 1, request="full-once", status=429)
    await reached(relume, 1, request="full-retried", status=200)
    lines = [line for line in access_lines(relume) if line["request"] == "full-retried"]
    assert 2 <= len(lines) <= 11
    assert [line["status"] for line in lines] == [429] * (len(lines) - 1) + [200]


async def test_a_start_that_cannot_end_before_the_deadline(relume: Running) -> None:
    """503 with Retry-After from the measured start time, and the client may try again; once its wait is longer, it is
    served."""
    assert (await relume.chat("slow-start")).status == 200  # now the start time is known
    await relume.until(lambda status: status["state"] == "Zero", "slow-start")
    async with asynchronous(relume, max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await chat(client, "slow-start", "impossible", extra_headers={"x-relume-timeout": "300ms"})
        assert refused.value.status_code == 503
        assert refused.value.code == "cannot_start_in_time"
        assert refused.value.response.headers["x-should-retry"] == "true"
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 30
        await reached(relume, 1, request="impossible", status=503)
        assert (await chat(client, "slow-start", "possible", extra_headers={"x-relume-timeout": "60s"})).choices


async def test_a_deadline_that_passes(relume: Running) -> None:
    """504 without a second try, since the client's own time is over: x-should-retry says so."""
    async with asynchronous(relume) as client:
        with pytest.raises(openai.InternalServerError, match="may wait") as refused:
            await chat(client, "never", "too-late", extra_headers={"x-relume-timeout": "500ms"})
    assert refused.value.status_code == 504
    assert refused.value.response.headers["x-should-retry"] == "false"
    await reached(relume, 1, request="too-late", status=504)


async def test_a_model_that_does_not_start(relume: Running) -> None:
    """503 with the engine's own reason; in a stream that has begun with heartbeats, an APIError with the same words."""
    async with asynchronous(relume, max_retries=0) as client:
        whole = asyncio.create_task(chat(client, "broken", "broken-whole"))
        chunks: list[Any] = []
        with pytest.raises(openai.APIError, match="failed to start 3 times") as broken:
            await streamed(client, "broken", "broken-stream", chunks)
        with pytest.raises(openai.InternalServerError, match="failed to start 3 times") as refused:
            await whole
    assert not chunks
    assert not isinstance(broken.value, openai.APIStatusError)  # the status was 200 already
    assert broken.value.code == refused.value.code == "model_start_failed"
    assert "failStart" in refused.value.message
    assert refused.value.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) >= 1


async def test_what_the_engine_refuses(relume: Running) -> None:
    """The engine's own errors go through as they are: a 503 is tried three times by the client, a 400 once."""
    async with asynchronous(relume) as client:
        with pytest.raises(openai.InternalServerError, match="injected failure"):
            await chat(client, "failing", "engine-503")
        with pytest.raises(openai.BadRequestError, match="context"):
            await chat(client, "echo", "engine-400", max_tokens=100_000)
    await reached(relume, 3, request="engine-503", status=503)
    await reached(relume, 1, request="engine-400", status=400)


async def test_a_stream_that_breaks(relume: Running) -> None:
    """A replica that fails in the middle of a stream raises in the client: never a clean end."""
    async with asynchronous(relume) as client:
        chunks: list[Any] = []
        with pytest.raises(openai.APIError, match="failed while it answered") as broken:
            await streamed(client, "cut", "cut", chunks)
    assert chunks
    assert broken.value.code == "replica_failed"
    await reached(relume, 1, request="cut", ending="replica_failed")


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/chat/completions", {"messages": HELLO}, "missing_model"),
        ("/chat/completions", {"model": 5, "messages": HELLO}, "invalid_model"),
        ("/chat/completions", {"model": "echo", "messages": HELLO, "stream": "yes"}, "invalid_stream"),
        ("/chat/completions", ["echo"], "invalid_json"),
        ("/embeddings", {"model": "x" * 300, "input": "x"}, "invalid_model"),
    ],
)
async def test_a_bad_body(relume: Running, path: str, body: Any, code: str) -> None:
    """BadRequestError with a code that says what is wrong, and no second try."""
    mark = f"bad-{code}-{len(str(body))}"
    async with asynchronous(relume) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.post(path, body=body, cast_to=object, options={"headers": {"x-request-id": mark}})
    assert refused.value.code == code
    assert refused.value.type == "invalid_request_error"
    await reached(relume, 1, request=mark, status=400)


async def test_too_large_a_body(relume: Running) -> None:
    """413 as an APIStatusError with an error object, not a connection that breaks off, and no second try."""
    async with asynchronous(relume) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.completions.create(
                model="echo", prompt="x" * 1_000_000, extra_headers={"x-request-id": "too-large"}
            )
    assert refused.value.status_code == 413
    assert refused.value.code == "request_too_large"
