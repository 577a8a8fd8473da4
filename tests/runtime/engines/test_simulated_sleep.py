"""The simulated engine sleeps and wakes as vLLM does."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.simulated import Client, completion, simulated
from tests.support.vllm_recording import recorded

ASKED = completion(max_tokens=4, temperature=0)


async def text(client: Client) -> str:
    """What it says to `ASKED`."""
    return (await client.post("/v1/completions", ASKED)).parsed["choices"][0]["text"]


async def asleep(client: Client) -> bool:
    return (await client.get("/is_sleeping")).parsed["is_sleeping"]


async def test_level_1_forgets_nothing() -> None:
    """Asleep it is healthy and answers nothing; awake it says what it said before."""
    async with simulated() as client:
        before = await text(client)
        assert not await asleep(client)
        assert (await client.post("/sleep?level=1", {})).status == 200
        assert await asleep(client)
        assert (await client.get("/health")).status == 200
        assert (await client.post("/v1/completions", ASKED)).status == 503
        assert (await client.post("/wake_up", {})).status == 200
        assert not await asleep(client)
        assert await text(client) == before


async def test_level_2_needs_its_weights_again() -> None:
    """Woken in the order of the documentation it is itself; woken without its weights it talks gibberish."""
    async with simulated() as client:
        before = await text(client)
        await client.post("/sleep?level=2", {})
        early = await client.post("/collective_rpc", {"method": "reload_weights"})
        assert early.status == 500
        await client.post("/wake_up?tags=weights", {})
        assert await asleep(client)
        assert (await client.post("/collective_rpc", {"method": "reload_weights"})).status == 200
        await client.post("/wake_up?tags=kv_cache", {})
        await client.post("/reset_prefix_cache", {})
        assert not await asleep(client)
        assert await text(client) == before
        await client.post("/sleep?level=2", {})
        await client.post("/wake_up", {})
        assert await text(client) == "!!!!"


async def test_a_wake_that_goes_wrong() -> None:
    """--wakes-wrong: also level 1 comes back as another."""
    async with simulated("--wakes-wrong") as client:
        before = await text(client)
        await client.post("/sleep", {})
        await client.post("/wake_up", {})
        assert await text(client) != before


async def test_it_does_not_sleep_while_it_works() -> None:
    """A request that runs is not cut."""
    async with simulated("--time-to-first-token", "300ms") as client:
        running = asyncio.create_task(text(client))
        await client.until(running=1)
        assert (await client.post("/sleep", {})).status == 409
        assert await running


async def test_times_pass() -> None:
    """Sleep and wake take as long as they are told to."""
    async with simulated("--sleep-duration", "60ms", "--wake-duration", "80ms") as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.post("/sleep", {})
        slept = loop.time()
        await client.post("/wake_up", {})
        assert slept - began >= 0.06
        assert loop.time() - slept >= 0.08


RECORDED = recorded()


@pytest.mark.parametrize("level", [1, 2])
async def test_it_answers_as_the_real_one_did(level: int) -> None:
    """Order by order, with the status and the JSON that a real vLLM was recorded with; what it says is its own."""
    async with simulated() as client:
        for one in RECORDED[f"level {level}"]:
            if one.path == "/v1/completions":
                continue
            body = json.loads(one.body) if one.body else {}
            reply = await (client.get(one.path) if one.method == "GET" else client.post(one.path, body))
            assert (reply.status, reply.parsed) == (one.status, json.loads(one.answer)), one.path


async def test_what_does_not_exist_is_answered_as_the_real_one_did() -> None:
    """Refused, or taken without any effect."""
    async with simulated() as client:
        for one in RECORDED["asides"]:
            reply = await client.post(one.path, json.loads(one.body) if one.body else {})
            assert reply.status == one.status, one.path
            if reply.status >= 400:
                assert reply.parsed["error"]["message"]
        assert not await asleep(client)
