"""The prober's one-token request: what is "later", what is "never"."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.prober import BROKEN_FOR, HttpProber
from events.clock import SystemClock
from events.units import Instant
from runtime.ports import Probe

PROBE = Probe(health_path="/health", warmup_path="/v1/completions", warmup_body=b"{}")


class FastClock:
    """Sleeps pass a hundred times as fast."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._skipped = 0.0

    def now(self) -> Instant:
        return Instant(self._clock.now() + self._skipped)

    async def sleep_until(self, instant: Instant) -> None:
        self._skipped += max(0.0, instant - self.now()) * 99 / 100
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        pytest.param([200], "", id="answered"),
        pytest.param([503, 503, 429, 200], "", id="later"),
        pytest.param([500, 502, 200], "", id="an-error-that-goes-away"),
        pytest.param([400], "was answered with 400: no", id="never"),
        pytest.param([500], "was answered with 500: no", id="an-error-that-stays"),
    ],
)
async def test_warm_up(statuses: list[int], verdict: str) -> None:
    """200 is ready; 503 and 429 are later; other 4xx are never; errors that stay are never after `BROKEN_FOR`."""
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=statuses[min(asked, len(statuses)) - 1], text="no")

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    clock = FastClock()
    async with TestServer(app) as server:
        prober = HttpProber(clock)
        began = clock.now()
        said = await prober.warm_up(str(server.host), int(server.port or 0), PROBE)
        await prober.close()
    assert said.endswith(verdict)
    assert bool(said) == bool(verdict)
    if statuses == [500]:
        assert clock.now() - began >= BROKEN_FOR
    else:
        assert asked == len(statuses)
