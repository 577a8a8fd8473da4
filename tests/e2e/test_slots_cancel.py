"""A client that leaves: what becomes of the engine's slot and of the lease, judged by the engine's own counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.openai_clients import (
    HELLO,
    access_lines,
    addresses_of,
    asynchronous,
    levels,
    llamacpp,
    logged,
    reached,
    stats_of,
    together,
)
from tests.support.running import Running, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

WITHIN = 2.0
"""Seconds after which a slot is free again when its engine cancels (issue 3); generous for llama.cpp's 0.1 s."""


def one_slot(cancels: str) -> str:
    """A model of one slot on an engine that cancels so, named after it."""
    options = f"cancels: {cancels}, timeToFirstToken: 20ms, interTokenLatency: 50ms, maxTokens: 60"
    return simulated(cancels, options=options, extra="  slots: 1", maxReplicas=1, keepAlive="60s")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relume(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Models of one slot that cancel in all three ways, and two of four slots for the storms."""
    quick = "timeToFirstToken: 5ms, interTokenLatency: 5ms, maxTokens: 30"
    storms = [
        simulated(f"storm-{cancels}", options=f"cancels: {cancels}, {quick}", maxReplicas=2, keepAlive="60s")
        for cancels in ("streams", "never")
    ]
    documents = [one_slot(cancels) for cancels in ("always", "streams", "never")]
    async with logged(tmp_path_factory.mktemp("cancel"), together(*documents, *storms)) as one:
        yield one


async def start_and_leave(relume: Running, model: str, *, stream: bool) -> None:
    """Ask, and close the connection while the engine is at it: after the first chunk, or without a byte."""
    async with asynchronous(relume, max_retries=0) as client:
        if stream:
            chunks = await client.chat.completions.create(model=model, messages=HELLO, stream=True)
            await anext(aiter(chunks))
            await chunks.close()
            return
        asked = asyncio.create_task(client.chat.completions.create(model=model, messages=HELLO))
        await relume.until(levels(1, 0), model)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


@pytest.mark.parametrize(("cancels", "stream"), [("always", True), ("always", False), ("streams", True)])
async def test_an_engine_that_cancels(relume: Running, cancels: str, stream: bool) -> None:
    """The slot and the lease are free again at once, and the next request has them: no slot is oversold."""
    assert (await relume.chat(cancels, max_tokens=1)).status == 200
    before = (await stats_of(relume, cancels))[0]
    await start_and_leave(relume, cancels, stream=stream)
    await relume.until(levels(0, 0), cancels, WITHIN)
    assert (await relume.chat(cancels, max_tokens=1)).status == 200
    (stats,) = await stats_of(relume, cancels)
    assert stats["cancelled"] == before["cancelled"] + 1
    assert (stats["running"], stats["waiting"], stats["oversold"], stats["abandoned"]) == (0, 0, 0, 0)


@pytest.mark.parametrize(("cancels", "stream"), [("streams", False), ("never", True), ("never", False)])
async def test_an_engine_that_goes_on(relume: Running, cancels: str, stream: bool) -> None:
    """The lease lives until the engine is done, not until the client leaves: the next request waits for that."""
    assert (await relume.chat(cancels, max_tokens=1)).status == 200
    before = (await stats_of(relume, cancels))[0]
    await start_and_leave(relume, cancels, stream=stream)
    assert (await relume.status(cancels))["runningRequests"] == 1
    answer = await relume.chat(cancels, max_tokens=1)
    assert answer.status == 200
    assert int(answer.headers["x-relume-held-ms"]) > 0
    (stats,) = await stats_of(relume, cancels)
    assert stats["finished"] == before["finished"] + 2  # also the one that nobody waited for
    assert (stats["running"], stats["waiting"], stats["oversold"], stats["cancelled"]) == (0, 0, 0, before["cancelled"])
    await relume.until(levels(0, 0), cancels, WITHIN)


@pytest.mark.parametrize("model", ["storm-streams", "storm-never"])
async def test_a_storm_of_clients_that_leave(relume: Running, model: str) -> None:
    """Of 200 requests many leave at any moment; no engine ever has more than its slots, and all ends at zero."""
    draw = random.Random(20261129)
    plans = [(draw.random() < 0.5, draw.choice((None, None, draw.uniform(0.0, 0.6)))) for _ in range(200)]

    async def ask(number: int, stream: bool, patience: float | None) -> int:
        await asyncio.sleep(number * 0.005)
        body = {"model": model, "messages": HELLO, "stream": stream}
        headers = {"x-request-id": f"{model}-{number}"}
        try:
            async with (
                asyncio.timeout(patience),
                relume.session.post(f"{relume.gateway}/v1/chat/completions", json=body, headers=headers) as answer,
            ):
                await answer.read()
                return answer.status
        except TimeoutError:
            return 0
        except aiohttp.ClientError as error:
            raise AssertionError(f"request {number} was lost") from error

    asked = [ask(number, stream, patience) for number, (stream, patience) in enumerate(plans)]
    statuses = await asyncio.gather(*asked)
    assert set(statuses) <= {0, 200}
    patient = [status for status, (_, patience) in zip(statuses, plans, strict=True) if patience is None]
    assert set(patient) == {200}
    await relume.until(levels(0, 0), model)
    engines = await stats_of(relume, model)
    assert engines
    assert [one["oversold"] for one in engines] == [0] * len(engines)
    assert [one["duplicates"] for one in engines] == [0] * len(engines)
    assert [one["running"] + one["waiting"] for one in engines] == [0] * len(engines)
    assert sum(one["finished"] for one in engines) >= statuses.count(200)
    for one in engines:
        assert one["total"] == one["finished"] + one["cancelled"]


async def test_a_client_that_leaves_the_queue(relume: Running) -> None:
    """Who leaves while held never reaches the engine, and those behind move up."""
    slot = asyncio.create_task(relume.chat("always", max_tokens=30))
    await relume.until(levels(1, 0), "always")
    async with asynchronous(relume, max_retries=0) as client:
        held = asyncio.create_task(client.chat.completions.create(
            model="always", messages=HELLO, extra_headers={"x-request-id": "left-the-queue"}
        ))  # fmt: skip
        await relume.until(levels(1, 1), "always")
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await relume.until(levels(1, 0), "always", WITHIN)
        assert (await client.chat.completions.create(model="always", messages=HELLO, max_tokens=1)).choices
    assert (await slot).status == 200
    (line,) = await reached(relume, 1, request="left-the-queue")
    assert (line["ending"], line["replica"]) == ("client_left", None)
    (stats,) = await stats_of(relume, "always", ids=1000)
    assert "left-the-queue" not in stats["ids"]


async def test_a_client_that_gives_up_and_tries_again(relume: Running) -> None:
    """OpenAI's client times out and retries by itself while its request is held: the engine runs it once."""
    slot = asyncio.create_task(relume.chat("streams", max_tokens=100))
    await relume.until(levels(1, 0), "streams")
    async with asynchronous(relume, max_retries=5, timeout=0.5) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="streams", messages=HELLO, max_tokens=1, extra_headers={"x-request-id": "impatient"}
        )
    assert raw.retries_taken >= 1
    assert (await slot).status == 200
    await reached(relume, 1, request="impatient", status=200)
    lines = [line for line in access_lines(relume) if line["request"] == "impatient"]
    assert len(lines) == raw.retries_taken + 1
    left = [line for line in lines if line["replica"] is None]
    assert left
    assert {line["ending"] for line in left} == {"client_left"}
    (stats,) = await stats_of(relume, "streams", ids=1000)
    assert stats["ids"].count("impatient") == 1
    # On a busy machine the client may also give up while the engine is at it; those who left the queue never got there.
    assert stats["repeated"].get("impatient", 1) == len(lines) - len(left)
    assert stats["oversold"] == 0


@pytest.mark.needs("model")
async def test_llamacpp_with_clients_that_leave(relume: Running) -> None:
    """llama.cpp frees the slot of a stream whose client leaves; a whole answer keeps it, and the lease, to its end."""
    assert (await relume.apply(llamacpp(slots=1)))[0] == 200
    assert (await relume.chat("smollm2", max_tokens=1)).status == 200
    (address,) = await addresses_of(relume, "smollm2")

    async def busy() -> bool:
        async with relume.session.get(f"http://{address}/slots") as answer:
            (slot,) = await answer.json()
            return bool(slot["is_processing"])

    async def until_busy(wanted: bool, within: float) -> None:
        async with asyncio.timeout(within):
            while await busy() is not wanted:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.01)

    forever: Any = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}
    async with asynchronous(relume, max_retries=0) as client:
        stream = await client.chat.completions.create(model="smollm2", messages=HELLO, stream=True, **forever)
        await anext(aiter(stream))
        assert await busy()
        await stream.close()
        await until_busy(False, WITHIN)
        await relume.until(levels(0, 0), "smollm2", WITHIN)

        whole: Any = {"max_tokens": 150, "extra_body": {"ignore_eos": True}}
        asked = asyncio.create_task(client.chat.completions.create(model="smollm2", messages=HELLO, **whole))
        await relume.until(levels(1, 0), "smollm2")
        await until_busy(True, 30)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        after = asyncio.create_task(relume.chat("smollm2", max_tokens=1))
        await relume.until(levels(1, 1), "smollm2")
        assert await busy()
        answer = await after
    assert answer.status == 200
    assert int(answer.headers["x-relume-held-ms"]) > 0
    await relume.until(levels(0, 0), "smollm2", WITHIN)
    assert not await busy()


@pytest.mark.needs("model")
async def test_llamacpp_is_never_sent_more_than_its_slots(relume: Running) -> None:
    """While half of the clients leave, nothing ever waits inside llama.cpp: its count of deferred requests is 0."""
    assert (await relume.apply(llamacpp("small", slots=2)))[0] == 200
    assert (await relume.chat("small", max_tokens=1)).status == 200
    (address,) = await addresses_of(relume, "small")
    deferred: list[float] = []

    async def watch() -> None:
        while True:
            async with relume.session.get(f"http://{address}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            deferred.extend(float(line.split()[1]) for line in lines if line.startswith("llamacpp:requests_deferred "))
            await asyncio.sleep(0.02)

    async def ask(number: int) -> int:
        body = {"model": "small", "prompt": "x", "max_tokens": 12, "stream": number % 4 < 2, "ignore_eos": True}
        patience = 0.1 + 0.1 * number if number % 2 else None
        try:
            async with (
                asyncio.timeout(patience),
                relume.session.post(f"{relume.gateway}/v1/completions", json=body) as answer,
            ):
                await answer.read()
                return answer.status
        except TimeoutError:
            return 0

    watching = asyncio.create_task(watch())
    statuses = await asyncio.gather(*(ask(number) for number in range(16)))
    await relume.until(levels(0, 0), "small")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert set(statuses[::2]) == {200}
    assert set(statuses[1::2]) <= {0, 200}
    assert len(deferred) >= 3
    assert set(deferred) == {0.0}
