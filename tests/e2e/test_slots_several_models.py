"""Three engines side by side, and every way to name a model: by name, alias, header, and KServe's path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.openai_clients import HELLO, asynchronous, command, llamacpp, logged, stats_of, together
from tests.support.running import Running, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("model"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A real model, a simulated one that wants its own name, and a command; and one that cannot start."""
    documents = together(
        llamacpp(extra="  aliases: [HuggingFaceTB/SmolLM2-135M-Instruct]"),
        simulated(options="timeToFirstToken: 5ms, strictModel: true", extra="  aliases: [org/echo]"),
        command("served", "--time-to-first-token", "5ms", "--startup-duration", "300ms", extra="  aliases: [a/b/c]"),
        simulated("hopeless", options="failStart: spawn"),
    )
    async with logged(tmp_path_factory.mktemp("several"), documents) as one:
        yield one


async def test_all_at_once_from_zero(relume: Running) -> None:
    """Requests to three models at zero are each served by their own replicas; a model that fails delays none."""

    async def ask(client: openai.AsyncOpenAI, model: str) -> tuple[str, str]:
        raw = await client.chat.completions.with_raw_response.create(model=model, messages=HELLO, max_tokens=2)
        return model, raw.headers["x-relume-replica"]

    async with asynchronous(relume, max_retries=0) as client:
        hopeless = asyncio.create_task(ask(client, "hopeless"))
        names = ["smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct", "echo", "served", "a/b/c"]
        answers = await asyncio.gather(*(ask(client, name) for name in names * 2))
        with pytest.raises(openai.InternalServerError, match="hopeless"):
            await hopeless
    owners = {name: replica.rsplit("-", 2)[0] for name, replica in answers}
    assert owners == {
        "smollm2": "smollm2",
        "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2",
        "echo": "echo",
        "served": "served",
        "a/b/c": "served",
    }


async def test_the_header_names_the_model(relume: Running) -> None:
    """`x-relume-model` decides, whatever the body says, and reaches engines with paths that we do not know."""
    async with asynchronous(relume, max_retries=0) as client:
        raw = await client.completions.with_raw_response.create(
            model="gpt-4", prompt="x", extra_headers={"x-relume-model": "a/b/c"}
        )
        assert raw.headers["x-relume-replica"].startswith("served-")
        assert raw.parse().model == "gpt-4"  # the engine gets the body as it was written
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="echo", prompt="x", extra_headers={"x-relume-model": "nobody"})
    # llama.cpp's own endpoints: no model in the body, no /v1 before the path.
    url, headers = f"{relume.gateway}/tokenize", {"x-relume-model": "smollm2"}
    async with relume.session.post(url, json={"content": "Hello there"}, headers=headers) as answer:
        assert answer.status == 200
        assert len((await answer.json())["tokens"]) >= 2
    async with relume.session.get(f"{relume.gateway}/slots", headers=headers) as answer:
        assert answer.status == 200
        assert len(await answer.json()) == 2


async def test_kserves_path(relume: Running) -> None:
    """`/v2/models/NAME/infer` goes to the model in the path, with a version too; an alias's slashes are escaped."""
    body: dict[str, Any] = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
    for path, replica in (
        ("echo/infer", "echo-"),
        ("served/versions/1/infer", "served-"),
        ("a%2Fb%2Fc/infer", "served-"),
    ):
        async with relume.session.post(f"{relume.gateway}/v2/models/{path}", json=body) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["x-relume-replica"].startswith(replica)
            assert (await answer.json())["outputs"]
    async with relume.session.post(f"{relume.gateway}/v2/models/nobody/infer", json=body) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"


async def test_an_alias_reaches_the_engine_as_it_was_written(relume: Running) -> None:
    """The body is relayed byte for byte, so an engine that insists on its own name refuses the alias, and says so."""
    async with asynchronous(relume, max_retries=0) as client:
        assert (await client.completions.create(model="echo", prompt="x")).model == "echo"
        with pytest.raises(openai.NotFoundError, match="org/echo"):
            await client.completions.create(model="org/echo", prompt="x")


async def test_a_command_counts_like_any_engine(relume: Running) -> None:
    """A command's slots are exact too: a burst beyond them waits with us, not in the engine."""
    async with asynchronous(relume, max_retries=0) as client:
        await asyncio.gather(
            *(client.chat.completions.create(model="served", messages=HELLO, max_tokens=3) for _ in range(60))
        )
    engines = await stats_of(relume, "served")
    assert engines
    assert [one["oversold"] for one in engines] == [0] * len(engines)
