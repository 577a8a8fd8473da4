"""A model that follows a number of a real Prometheus: it wakes, grows, holds while nobody answers, and goes to zero."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.prometheus import prometheus
from tests.support.running import running, simulated

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.slow]

SIGNALS = "signals: [{prometheus: {query: 'sum(waiting_requests)', every: 1s, target: 5}}]"


async def test_a_model_follows_a_query(tmp_path: Path) -> None:
    """Nobody sends a request: the number alone wakes it and takes it to two replicas; the number gone to zero, it goes
    to zero; and what the number was stands in the explanation."""
    waiting = {"now": 0}

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(text=f"waiting_requests {waiting['now']}\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    model = simulated().replace("maxReplicas: 4", f"maxReplicas: 4, {SIGNALS}")
    async with (
        TestServer(app) as engine,
        prometheus(tmp_path / "prometheus", engine.port or 0) as url,
        running(tmp_path, model, "--prometheus", url) as relume,
    ):
        assert (await relume.status())["replicas"] == 0
        waiting["now"] = 10
        await relume.until(lambda status: status["readyReplicas"] == 2, within=40)
        async with relume.session.get(f"{relume.admin}/models/echo/explain") as answer:
            told = " ".join((await answer.json())["sentences"])
        waiting["now"] = 0
        await relume.until(lambda status: status["replicas"] == 0, within=60)
    assert "prometheus/sum(waiting_requests) was 10" in told


async def test_a_prometheus_that_dies_takes_nothing_away(tmp_path: Path) -> None:
    """Its last number counts until it runs out, and then holds; the reason is told."""

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(text="waiting_requests 5\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    model = simulated().replace("maxReplicas: 4", f"maxReplicas: 4, {SIGNALS}")
    async with TestServer(app) as engine:
        async with prometheus(tmp_path / "prometheus", engine.port or 0) as url:
            relume_up = running(tmp_path, model, "--prometheus", url)
            relume = await relume_up.__aenter__()
            await relume.until(lambda status: status["readyReplicas"] == 1, within=40)
        try:
            async with asyncio.timeout(90):
                told = ""
                while "has run out" not in told:
                    async with relume.session.get(f"{relume.admin}/models/echo/explain") as answer:
                        told = " ".join((await answer.json())["sentences"])
                    assert (await relume.status())["replicas"] == 1
                    await asyncio.sleep(1)
        finally:
            await relume_up.__aexit__(None, None, None)
    assert "cannot be asked" in told
