"""Putting an engine to sleep and waking it: against answers that were recorded from a real vLLM, and against faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.prober import HttpProber
from deploy.local.sleeping import Bed, memory_of, size_of
from events.clock import SystemClock
from events.names import ModelName, ReplicaName
from events.units import Seconds
from runtime.adapters.sleeping import VLLM_SLEEPS
from runtime.core.golden import said
from runtime.ports import LaunchRequest, Probe, Sleep
from tests.support.vllm_recording import Exchange, Replay, addressed, recorded, serving

LEVEL_1, LEVEL_2 = VLLM_SLEEPS
PROBE = Probe(health_path="/health", warmup_path="/v1/completions", warmup_body=b"{}")


class Faulty:
    """vLLM's router with faults: deaf to a path, late (as where orders are only passed on), another than before.
    A wake of some tags leaves it asleep."""

    def __init__(self, *, late: int = 0, deaf: str = "", says: str = " a") -> None:
        self.heard: list[str] = []
        self._late = late
        self._deaf = deaf
        self._says = says
        self._tags = {"weights", "kv_cache"}
        self._asleep: set[str] = set()
        self._goal: set[str] = set()

    async def post(self, request: web.Request) -> web.Response:
        self.heard.append(request.path_qs)
        if request.path == self._deaf:
            return web.Response(status=500, text="CUDA out of memory")
        if request.path == "/v1/completions":
            return web.json_response({"choices": [{"text": self._says}]})
        if request.path == "/sleep":
            self._goal = set(self._tags)
        if request.path == "/wake_up":
            self._goal -= set(request.query.getall("tags", list(self._tags)))
        return web.Response()

    async def asleep(self, _: web.Request) -> web.Response:
        if self._late:
            self._late -= 1
        else:
            self._asleep = set(self._goal)
        return web.json_response({"is_sleeping": bool(self._asleep)})


@asynccontextmanager
async def bed(vllm: Faulty, bound: float = 30.0) -> AsyncIterator[Bed]:
    app = web.Application()
    app.router.add_post("/{path:.*}", vllm.post)
    app.router.add_get("/is_sleeping", vllm.asleep)
    async with TestServer(app) as server:
        clock = SystemClock()
        prober = HttpProber(clock)
        wanted = LaunchRequest(ModelName("m"), ReplicaName("m-r1-0"), str(server.host), int(server.port or 0), 1)
        try:
            yield Bed(prober, clock, wanted, Seconds(bound))
        finally:
            await prober.close()


NEWEST = recorded()
"""vLLM 0.32.0: its API server, scheduler and executor, with a worker on a CPU, whose memory nobody takes away."""


def older(exchanges: list[Exchange]) -> list[Exchange]:
    """The same in 0.11.2 and 0.20.2: nothing in the answers to orders (entrypoints/openai/api_server.py, 0.11.2;
    entrypoints/serve/sleep/api_router.py and serve/cache/api_router.py, 0.20.2)."""
    silent = ("/sleep", "/wake_up", "/reset_prefix_cache")
    return [
        replace(one, type="", answer="") if one.path.partition("?")[0] in silent else one for one in exchanges
    ]  # fmt: skip


@pytest.mark.parametrize("of", ["0.32.0", "0.20.2"])
@pytest.mark.parametrize("way", VLLM_SLEEPS)
async def test_a_real_vllm_sleeps_and_wakes(way: Sleep, of: str) -> None:
    """Asked what it was asked when it was recorded, in that order, it sleeps, wakes, and is itself."""
    exchanges = NEWEST[f"level {way.level}"]
    vllm = Replay(exchanges if of == "0.32.0" else older(exchanges))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", vllm.answer)
    async with serving(app) as (host, port):
        wanted, probe = addressed("m", host, port)
        clock = SystemClock()
        prober = HttpProber(clock)
        made = Bed(prober, clock, wanted, Seconds(30.0))
        golden = said(exchanges[-1].answer.encode())
        assert golden is not None
        try:
            assert await made.sleep(way) == ""
            assert await made.wake(way) == ""
            assert await made.compare(probe, golden) == ""
        finally:
            await prober.close()
    assert (vllm.left, vllm.odd) == ([], [])


def test_the_order_of_the_documentation() -> None:
    """Room for the weights, the weights, room for the cache, an empty cache; then it is asked whether it is awake."""
    paths = [one.path for one in NEWEST["level 2"]]
    assert paths == [
        "/sleep?level=2", "/is_sleeping", "/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache",
        "/reset_prefix_cache", "/is_sleeping", "/v1/completions",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("vllm", "words"),
    [
        pytest.param(Faulty(deaf="/wake_up"), "POST /wake_up was answered with 500: CUDA out of memory", id="error"),
        pytest.param(Faulty(late=10**6), "did not say is_sleeping false within 0.2 s", id="never"),
    ],
)
async def test_a_wake_that_fails(vllm: Faulty, words: str) -> None:
    """It says what went wrong, within its bound."""
    vllm._asleep, vllm._goal = {"weights"}, {"weights"}
    async with bed(vllm, 0.2) as made:
        assert words in await made.wake(LEVEL_1)


async def test_nobody_listens() -> None:
    """An engine that is gone is told as such, not waited for."""
    async with bed(Faulty()) as made:
        made._port = 1
        assert "POST /sleep?level=1 was not answered" in await made.sleep(LEVEL_1)


async def test_one_that_is_parked_is_asked_nothing() -> None:
    """No call, no question."""
    vllm = Faulty()
    async with bed(vllm) as made:
        assert await made.sleep(Sleep(level=1)) == ""
        assert await made.wake(Sleep(level=1)) == ""
    assert vllm.heard == []


@pytest.mark.parametrize(("says", "wrong"), [(" a", ""), ("!", "its first token is another than before it slept")])
async def test_it_must_be_itself(says: str, wrong: str) -> None:
    """The one token is compared with the one of its start."""
    async with bed(Faulty(says=says)) as made:
        assert await made.compare(PROBE, (" a",)) == wrong


def test_sizes(tmp_path: Path) -> None:
    """A file, a folder, nothing, what is not there; and a process that is not."""
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(b"45")
    assert (size_of(str(tmp_path / "a")), size_of(str(tmp_path)), size_of("")) == (3, 5, 0)
    assert size_of(str(tmp_path / "none")) == 0
    assert memory_of(2**22 + 1) == 0
