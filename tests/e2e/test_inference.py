"""Asynchronous inference on a laptop: `relume up` on SQLite, requests told to the admin port, answers read from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from events.clock import SystemClock
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
RESULTS, DEAD, PARKED = (f"relume.inference.{name}" for name in ("results", "dead-letters", "parked"))
NEVER = simulated("never", options="startTime: 100ms, failStart: spawn", maxReplicas=1)


async def put(relume: Running, *requests: tuple[str, dict[str, Any]]) -> None:
    """Tell requests, by id."""
    events = [
        {"specversion": "1.0", "id": ident, "source": "//shop", "type": "relume.inference.requested.v1",
         "partitionkey": data["body"]["model"], "data": data}
        for ident, data in requests
    ]  # fmt: skip
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    async with relume.session.post(f"{relume.admin}/events", data=json.dumps(events), headers=headers) as answer:
        assert answer.status == 200, await answer.text()


def chat(model: str = "echo", *, body: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The data of a request."""
    asked = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    return {"path": CHAT, "body": asked | (body or {}), **more}


async def told(relume: Running, *topics: str) -> AsyncIterator[dict[str, Any]]:
    """Events of these topics, from the beginning, as they come; for a minute at most."""
    query = [("from", "beginning"), ("follow", "true"), *(("topic", topic) for topic in topics)]
    async with asyncio.timeout(60), relume.session.get(f"{relume.admin}/events", params=query) as answer:
        async for line in answer.content:
            yield json.loads(line)


async def outcomes(relume: Running, *wanted: str) -> dict[str, dict[str, Any]]:
    """What became of these requests; AssertionError when one has two outcomes."""
    found: dict[str, dict[str, Any]] = {}
    async for event in told(relume, RESULTS, DEAD):
        if ".chunk." in event["type"]:
            continue
        assert event["cause"] not in found
        found[event["cause"]] = event
        if found.keys() >= set(wanted):
            break
    return found


async def test_answers_share_a_key_and_come_once(tmp_path: Path) -> None:
    """From zero; a repetition, a shared idempotency key, an engine's own error, a model that nobody knows."""
    async with running(tmp_path, simulated()) as relume:
        await put(
            relume, ("plain", chat()), ("first", chat(idempotencyKey="k")), ("second", chat(idempotencyKey="k")),
            ("bad", chat(body={"max_tokens": -1})), ("lost", chat("nobody")), ("plain", chat()),
        )  # fmt: skip
        found = await outcomes(relume, "plain", "first", "second", "bad", "lost")
        assert {name: event["data"].get("status") for name, event in found.items()} == {
            "plain": 200, "first": 200, "second": 200, "bad": 400, "lost": None,
        }  # fmt: skip
        assert found["second"]["data"]["body"] == found["first"]["data"]["body"]
        assert found["lost"]["data"]["reason"] == "unknown_model"
        async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
            assert "relume_inference_runs_total 3.0" in await answer.text()


async def test_a_model_that_never_starts_is_in_nobodys_way(tmp_path: Path) -> None:
    """Its requests are parked after five seconds, and are dead letters at their deadline; others are answered
    meanwhile."""
    async with running(tmp_path, simulated() + "---\n" + NEVER) as relume:
        until = (datetime.fromtimestamp(SystemClock().now(), UTC) + timedelta(seconds=12)).isoformat()
        await put(relume, *((f"never-{at}", chat("never", deadline=until)) for at in range(30)), ("good", chat()))
        found = await outcomes(relume, "good")
        assert not any(name.startswith("never") for name in found)
        async for event in told(relume, PARKED):
            assert event["data"]["model"] == "never"
            assert event["data"]["parks"] == 1
            break
        await put(relume, ("later", chat()))
        found = await outcomes(relume, "later", *(f"never-{at}" for at in range(30)))
        assert {found[f"never-{at}"]["data"]["reason"] for at in range(30)} == {"deadline_exceeded"}


async def test_a_streamed_answer_comes_in_order_and_then_whole(tmp_path: Path) -> None:
    """Chunks with their index, the last one marked; the answer that counts says how many there were."""
    async with running(tmp_path, simulated()) as relume:
        await put(relume, ("s", chat(body={"stream": True}, stream=True)))
        chunks = []
        async for event in told(relume, RESULTS):
            if event["type"] == "relume.inference.completed.v1":
                break
            chunks.append(event["data"])
        assert [one["index"] for one in chunks] == list(range(len(chunks)))
        assert [one["last"] for one in chunks] == [*([False] * (len(chunks) - 1)), True]
        assert event["data"]["chunks"] == len(chunks) > 2
        assert event["data"]["body"].startswith("data: {")


async def test_requests_outlive_the_process(tmp_path: Path) -> None:
    """kill -9 while they run and wait: after the next start all are answered, once."""
    slow = simulated(options="startTime: 100ms, timeToFirstToken: 300ms, interTokenLatency: 10ms", maxReplicas=1)
    async with running(tmp_path, slow) as relume:
        names = [f"r{at}" for at in range(40)]
        await put(relume, *((name, chat()) for name in names))
        await outcomes(relume, "r0", "r1")
        assert relume.server._process is not None
        relume.server._process.kill()
        await relume.server._process.wait()
        await relume.server.start()
        found = await outcomes(relume, *names)
        assert {event["data"]["status"] for event in found.values()} == {200}
