"""Floods: clients that come and go at random, and a hundred thousand quick requests. Nothing adds up or is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.faults import Whole, faulty, metric
from tests.support.openai_clients import together
from tests.support.raw_client import RawClient, post
from tests.support.running import Running, simulated

pytestmark = pytest.mark.slow

MIB = 1 << 20
CONNECTIONS = 2000
REQUESTS = 100_000
BOTH = together(
    simulated(keepAlive="10m", minReplicas=2, maxReplicas=2,
              options="startTime: 50ms, timeToFirstToken: 30ms, interTokenLatency: 3ms, maxTokens: 10"),
    simulated("sleepy", keepAlive="1s", stableWindow="1s", maxReplicas=2,
              options="startTime: 700ms, timeToFirstToken: 10ms, interTokenLatency: 3ms, maxTokens: 5"),
)  # fmt: skip


def chat(model: str, stream: bool) -> bytes:
    """A whole request."""
    shown = "true" if stream else "false"
    return post(
        b'{"model":"%b","stream":%b,"messages":[{"role":"user","content":"x"}]}' % (model.encode(), shown.encode())
    )


async def come_and_go(relume: Running, count: int, seconds: float, seed: int) -> dict[str, int]:
    """So many connections that open at random moments, send all or a part of a request, and close at random moments;
    how many read a whole answer, and with which status."""
    dice = random.Random(seed)
    port = int(urlsplit(relume.gateway).port or 0)
    met: dict[str, int] = {}

    async def one(begins: float, stays: float, request: bytes, patient: bool) -> None:
        await asyncio.sleep(begins)
        client = await RawClient.open(port)
        try:
            await client.send(request)
            if patient:
                status = str((await client.reply()).status)
                met[status] = met.get(status, 0) + 1
            else:
                await asyncio.sleep(stays)
        finally:
            client.writer.transport.abort()

    visits = []
    for _ in range(count):
        request = chat(dice.choice(["echo", "sleepy"]), dice.random() < 0.5)
        cut = dice.choice([len(request), len(request), len(request), dice.randrange(len(request))])
        patient = cut == len(request) and dice.random() < 0.2
        visits.append(one(dice.uniform(0, seconds), dice.expovariate(5), request[:cut], patient))
    await asyncio.gather(*visits)
    return met


async def quiet(relume: Running) -> None:
    """Wait until no request is held or runs."""
    for model in ("echo", "sleepy"):
        await relume.until(
            lambda status: status["heldRequests"] == 0 and status["runningRequests"] == 0, model, within=60
        )


async def test_clients_that_come_and_go(tmp_path: Path) -> None:
    """2,000 connections over 10 s on a warm model and one at zero: who stays is answered 200; afterwards nothing is
    held or runs, no connection or file stays open, memory is back, and both models answer."""
    whole = Whole(tmp_path, BOTH)
    async with faulty(whole) as relume:
        met = await come_and_go(relume, CONNECTIONS // 4, 3, seed=1)  # what is made once and kept
        await quiet(relume)
        assert (await relume.chat()).status == 200
        await _connections(relume, 1)
        base = whole.vitals()
        for seed in (2, 3):
            met = await come_and_go(relume, CONNECTIONS // 2, 5, seed)
            assert set(met) == {"200"}, met
            assert met["200"] > 50
        await quiet(relume)
        await _connections(relume, 1)
        for model in ("echo", "sleepy"):
            assert (await relume.chat(model)).status == 200
        for name in ("relume_gateway_buffered_bytes", "relume_desk_news_pending"):
            assert await metric(relume, name) == 0
        for item in await relume.replicas():
            if item["spec"]["model"] == "echo":  # those of the other one are on their way to zero
                stats = await relume.engine_stats(item["status"]["address"])
                assert stats["oversold"] == stats["duplicates"] == 0
        after = whole.vitals()
        assert after.fds <= base.fds + 20, (base, after)  # a replica more, its log, pooled connections to it
        assert after.threads <= base.threads + 4
        assert after.rss - base.rss < 24 * MIB, f"{(after.rss - base.rss) / MIB:.1f} MiB"


async def test_a_hundred_thousand_requests(tmp_path: Path) -> None:
    """All are answered 200, and memory after them is what it was after the first tenth."""
    model = simulated(
        options="startTime: 50ms, maxTokens: 1", keepAlive="10m", minReplicas=2, maxReplicas=2, extra="  slots: 16"
    )
    whole = Whole(tmp_path, model, "--access-log", str(tmp_path / "access.jsonl"))
    async with faulty(whole) as relume:
        await relume.until(lambda status: status["readyReplicas"] == 2)
        assert await hammer(relume, REQUESTS // 10) == REQUESTS // 10
        base = whole.vitals()
        assert await hammer(relume, REQUESTS - REQUESTS // 10) == REQUESTS - REQUESTS // 10
        after = whole.vitals()
        assert after.rss - base.rss < 16 * MIB, f"{(after.rss - base.rss) / MIB:.1f} MiB"
        assert after.fds <= base.fds + 16
        served = 0
        for item in await relume.replicas():
            stats = await relume.engine_stats(item["status"]["address"])
            served += stats["finished"]
            assert stats["duplicates"] == 0
        assert served == REQUESTS
        await relume.until(lambda status: status["runningRequests"] == 0 and status["heldRequests"] == 0)
        async with asyncio.timeout(20):  # the last window is told within a second, and counted after that
            while await metric(relume, "relume_requests_finished_total") < REQUESTS:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.2)
        assert await metric(relume, "relume_requests_arrived_total") == REQUESTS
        assert await metric(relume, "relume_requests_finished_total") == REQUESTS
        assert await metric(relume, "relume_gateway_access_lines_dropped_total") == 0
    assert (tmp_path / "access.jsonl").read_bytes().count(b"\n") == REQUESTS


async def hammer(relume: Running, count: int) -> int:
    """So many requests over 24 connections that are kept; how many were answered 200, whole."""
    request = post(b'{"model":"echo","messages":[{"role":"user","content":"x"}],"max_tokens":1}')
    port = int(urlsplit(relume.gateway).port or 0)
    clients = 24

    async def client(share: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answered = 0
        try:
            for _ in range(share):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                answered += head.startswith(b"HTTP/1.1 200 ")
        finally:
            writer.close()
        return answered

    shares = [count // clients + (number < count % clients) for number in range(clients)]
    return sum(await asyncio.gather(*(client(share) for share in shares)))


async def _connections(relume: Running, most: int) -> None:
    """Wait until no more than so many clients are connected to the data port."""
    for _ in range(400):
        if await metric(relume, "relume_gateway_connections") <= most:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{await metric(relume, 'relume_gateway_connections')} connections are still open")
