"""What a person changes while requests are under way: another revision, a deletion, a number of replicas by hand."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from events.clock import SystemClock
from tests.support.openai_clients import HELLO, asynchronous, levels, logged, reached, stats_of
from tests.support.running import Running, simulated

pytestmark = pytest.mark.slow

QUICK = "startTime: 300ms, timeToFirstToken: 30ms, interTokenLatency: 10ms, maxTokens: 8"


@contextlib.asynccontextmanager
async def load(relume: Running, clients: int) -> AsyncIterator[list[tuple[int, str]]]:
    """Clients that ask without a pause, half of them streams: (status, replica) of each answer; raises at a break."""
    answers: list[tuple[int, str]] = []
    stop = asyncio.Event()

    async def client(number: int) -> None:
        body = {"model": "echo", "messages": HELLO, "stream": number % 2 == 0}
        while not stop.is_set():
            async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=body) as answer:
                text = await answer.text()
                answers.append((answer.status, answer.headers.get("x-relume-replica", text)))
                assert number % 2 or text.endswith("data: [DONE]\n\n"), f"a stream was cut: {text[-200:]}"

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
        try:
            yield answers
        finally:
            stop.set()


@pytest.mark.parametrize("cpu", [4, 1])
async def test_another_revision_under_load(tmp_path: Path, cpu: int) -> None:
    """Changed engine options roll out while clients ask, also where no second replica fits; no request is lost."""
    scale: dict[str, Any] = {"keepAlive": "60s", "maxReplicas": 1, "extra": "  resources: {cpu: 0.6, memory: 64Mi}"}
    async with logged(tmp_path, simulated(options=QUICK, **scale), "--cpu", str(cpu)) as relume:
        assert await _tokens(relume) == 8
        async with load(relume, 6) as answers:
            await _answered(answers, "-r1-", 20)
            before = await stats_of(relume, "echo")
            status, told = await relume.apply(simulated(options=QUICK.replace("8", "3"), **scale))
            assert status == 200, told
            await _answered(answers, "-r2-", 20)
        assert {status for status, _ in answers} == {200}
        assert {replica.split("-")[1] for _, replica in answers[-6:]} == {"r2"}
        await _until_gone(relume, "-r1-")
        assert await _tokens(relume) == 3
        assert [one["oversold"] for one in before + await stats_of(relume, "echo")] == [0, 0]


async def test_a_revision_that_does_not_start(tmp_path: Path) -> None:
    """The old revision goes on serving, the status says why, and the next revision takes over."""
    async with logged(tmp_path, simulated(options=QUICK, keepAlive="60s", maxReplicas=1)) as relume:
        assert (await relume.chat()).status == 200
        async with load(relume, 3) as answers:
            bad = simulated(options=f"{QUICK}, failStart: load", keepAlive="60s", maxReplicas=1)
            assert (await relume.apply(bad))[0] == 200
            await relume.until(lambda status: "failStart" in status["message"])
            count = len(answers)
            await _answered(answers, "-r1-", count + 10)
            assert (await relume.apply(simulated(options=QUICK, keepAlive="60s", maxReplicas=1)))[0] == 200
            await _answered(answers, "-r3-", 10)
        assert {status for status, _ in answers} == {200}
        assert not any("-r2-" in replica for _, replica in answers)


async def _tokens(relume: Running) -> int:
    """How long an answer is, if the request does not say."""
    body = {"model": "echo", "messages": HELLO}
    async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=body) as answer:
        return int((await answer.json())["usage"]["completion_tokens"])


async def _answered(answers: list[tuple[int, str]], mark: str, count: int) -> None:
    """Wait until replicas with `mark` in their name have given so many answers."""
    async with asyncio.timeout(40):
        while sum(mark in replica for _, replica in answers) < count:  # noqa: ASYNC110 - appended by other tasks
            await asyncio.sleep(0.02)


async def _until_gone(relume: Running, mark: str) -> None:
    """Wait until no replica has `mark` in its name."""
    async with asyncio.timeout(30):
        while any(mark in item["metadata"]["name"] for item in await relume.replicas()):  # noqa: ASYNC110 - see `until`
            await asyncio.sleep(0.05)


async def test_a_deletion_under_load(tmp_path: Path) -> None:
    """Running requests are finished, held ones get a 404 that says why, and the model is not there any more."""
    slow = "timeToFirstToken: 50ms, interTokenLatency: 100ms, maxTokens: 30"
    async with logged(tmp_path, simulated(options=slow, extra="  slots: 2", maxReplicas=1)) as relume:
        assert (await relume.chat(max_tokens=1)).status == 200
        async with asynchronous(relume) as client:  # with its own retries: a 404 is not tried again
            asked = [asyncio.create_task(_answer_of(client, stream)) for stream in (True, False, True, False)]
            await relume.until(levels(2, 2))
            async with relume.session.delete(f"{relume.admin}/models/echo") as answer:
                assert answer.status == 200
            outcomes = collections.Counter(await asyncio.gather(*asked))
            assert outcomes == {"30 tokens": 2, "404 model_deleted": 2}
            assert await _answer_of(client, False) == "404 model_not_found"
            assert [model.id async for model in await client.models.list()] == []
        await _until_gone(relume, "echo-")
        await reached(relume, 2, status=404, ending="model_deleted")


async def _answer_of(client: openai.AsyncOpenAI, stream: bool) -> str:
    """The length of the answer, or the error."""
    try:
        if not stream:
            answer = await client.chat.completions.create(model="echo", messages=HELLO)
            count = answer.usage.completion_tokens if answer.usage else 0
        else:
            chunks: Any = await client.chat.completions.create(model="echo", messages=HELLO, stream=True)
            count = len([chunk async for chunk in chunks if chunk.choices[0].delta.content])
    except openai.APIStatusError as error:
        return f"{error.status_code} {error.code}"
    return f"{count} tokens"


async def test_deleted_and_declared_again_while_requests_wait(tmp_path: Path) -> None:
    """A new model of the same name is another one: nobody who waited for the old one is lost, and it serves at once."""
    document = simulated(options="startTime: 1s, maxTokens: 1", maxReplicas=1)
    async with logged(tmp_path, document) as relume:
        asked = [asyncio.create_task(relume.chat()) for _ in range(5)]
        await relume.until(levels(0, 5))
        async with relume.session.delete(f"{relume.admin}/models/echo") as answer:
            assert answer.status == 200
        assert (await relume.apply(document))[0] == 200
        assert [answer.status for answer in await asyncio.gather(*asked)] == [404] * 5
        assert (await relume.chat()).status == 200


async def test_scale_by_hand_works_and_expires(tmp_path: Path) -> None:
    """`relume scale MODEL N --for 3s` gives N replicas whatever the load, 0 holds requests; both end by themselves."""
    clock = SystemClock()
    async with logged(tmp_path, simulated(options="startTime: 100ms", keepAlive="500ms", stableWindow="1s")) as relume:
        began = clock.now()
        await _scale(relume, "3", "--for", "3s")
        await relume.until(lambda status: status["readyReplicas"] == 3)
        assert (await relume.status())["override"]["replicas"] == 3
        await relume.until(lambda status: status["replicas"] == 0)
        assert clock.now() - began >= 3.0
        assert (await relume.status()).get("override") is None

        # 0 by hand: who asks is held until it expires, and is served then.
        began = clock.now()
        await _scale(relume, "0", "--for", "2s")
        assert (await relume.chat()).status == 200
        assert clock.now() - began >= 2.0

        # `auto` ends it before its time.
        await _scale(relume, "2", "--for", "1h")
        await relume.until(lambda status: status["readyReplicas"] == 2)
        await _scale(relume, "auto")
        await relume.until(lambda status: status["replicas"] == 0)


async def _scale(relume: Running, number: str, *more: str) -> None:
    """`relume scale echo NUMBER …` as a person types it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", "scale", "echo", number, *more, "--admin", relume.server.admin_url,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()


async def test_min_replicas_keeps_one(tmp_path: Path) -> None:
    """With minReplicas 1 a replica is there before anybody asks, stays when nobody does, and comes back if it dies."""
    document = simulated(options="startTime: 100ms", minReplicas=1, keepAlive="300ms", stableWindow="1s")
    async with logged(tmp_path, document) as relume:
        await relume.until(lambda status: status["readyReplicas"] == 1)
        answer = await relume.chat()
        assert (answer.status, answer.headers["x-relume-cold-start"]) == (200, "false")
        async with asyncio.TaskGroup() as group:  # grows beyond it …
            for _ in range(12):
                group.create_task(relume.chat(max_tokens=400))
        for _ in range(20):  # … and never falls below it
            assert (await relume.status())["readyReplicas"] >= 1
            await asyncio.sleep(0.1)
        await relume.until(lambda status: status["replicas"] == 1)
        (replica,) = await relume.replicas()
        os.kill(replica["status"]["pid"], 9)
        await relume.until(lambda status: status["readyReplicas"] == 0)
        await relume.until(lambda status: status["readyReplicas"] == 1)
        assert (await relume.chat()).status == 200
