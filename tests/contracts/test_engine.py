"""What every engine keeps: it starts, is seen to be ready, streams, stops what it says it stops, and tells its load.

The same tests run over llama.cpp with a real model, the simulated engine, and a command that starts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from deploy.demo.model import cached_path
from deploy.local.prober import HttpProber
from deploy.local.readings import read_metrics
from events.clock import SystemClock
from events.names import ModelName, ReplicaName
from events.types.metrics import ReplicaMetrics
from events.units import Seconds
from runtime.adapters.registry import engine_for
from runtime.core.policy import Cancels
from runtime.desk.busy import parse_running
from runtime.ports import Abilities, Engine, LaunchRequest
from runtime.spec import EngineType

SLOTS = 2
SIMULATED = ["{python}", "-m", "runtime.engines.simulated_server", "--host", "{host}", "--port", "{port}",
             "--model", "{model}", "--max-num-seqs", "{slots}", "--max-model-len", "8192", "--inter-token-latency",
             "5ms", "--cancels", "streams"]  # fmt: skip
OPTIONS: Mapping[str, tuple[EngineType, Mapping[str, object]]] = {
    "llamacpp": (EngineType.LLAMACPP, {}),
    "simulated": (EngineType.SIMULATED, {"interTokenLatency": "5ms"}),
    "command": (EngineType.COMMAND, {"command": SIMULATED, "busyPath": "/running", "metricsPath": "/metrics"}),
}
REAL = [pytest.mark.model, pytest.mark.slow, pytest.mark.needs("model")]


@dataclass(frozen=True)
class Running:
    """A started engine."""

    engine: Engine
    wanted: LaunchRequest
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.wanted.host}:{self.wanted.port}"

    @property
    def abilities(self) -> Abilities:
        return self.engine.abilities(self.wanted)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(name: str, folder: Path) -> Running:
    kind, options = OPTIONS[name]
    weights = str(cached_path()) if name == "llamacpp" else ""
    engine = engine_for(kind)
    wanted = LaunchRequest(
        model=ModelName("contract"), replica=ReplicaName("contract-1"), host="127.0.0.1", port=free_port(),
        slots=SLOTS, weights=weights, options=options,
    )  # fmt: skip
    command = engine.launch(wanted)
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command.argv, env={**os.environ, **command.env}, stdout=out, stderr=out)
    return Running(engine, wanted, process, log)


@pytest.fixture(
    scope="module",
    params=[pytest.param("llamacpp", marks=REAL), "simulated", "command"],
)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One process for all tests of an engine; the last one ends it."""
    started = launch(request.param, tmp_path_factory.mktemp("engine"))
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture
async def prober() -> AsyncIterator[HttpProber]:
    made = HttpProber(SystemClock())
    yield made
    await made.close()


@pytest.fixture
async def ready(running: Running, prober: HttpProber) -> Running:
    """The engine, seen to be ready just as the local cluster sees it."""
    host, port, probe = running.wanted.host, running.wanted.port, running.engine.probe(running.wanted)
    async with asyncio.timeout(60):
        await prober.wait_listening(host, port)
        await prober.wait_healthy(host, port, probe.health_path)
        assert await prober.warm_up(host, port, probe) == ""
    return running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as made:
        yield made


def chat(max_tokens: int, *, stream: bool) -> dict[str, object]:
    messages = [{"role": "user", "content": "Count from one to a thousand."}]
    more = {"stream_options": {"include_usage": True}} if stream else {}
    return {
        "model": "contract",
        "messages": messages,
        "max_tokens": max_tokens,
        "stream": stream,
        "temperature": 0,
    } | more


async def busy(running: Running, session: aiohttp.ClientSession) -> int:
    async with session.get(running.url + running.abilities.busy_path) as answer:
        count = parse_running(await answer.read())
    assert count is not None
    return count


async def until_busy(running: Running, session: aiohttp.ClientSession, count: int) -> None:
    """Return when so many requests run; fail after thirty seconds."""
    async with asyncio.timeout(30):
        while True:
            if await busy(running, session) == count:
                return
            await asyncio.sleep(0.02)


async def metrics(running: Running, session: aiohttp.ClientSession) -> ReplicaMetrics:
    async with session.get(running.url + running.abilities.metrics_path) as answer:
        return read_metrics(await answer.read(), "contract", "contract-1", 1)


async def test_it_becomes_ready(ready: Running) -> None:
    """Listening, healthy, the first token; the process goes on."""
    assert ready.process.poll() is None


async def test_it_listens_on_the_given_address_only(ready: Running) -> None:
    """Not on all interfaces."""
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", ready.wanted.port)) != 0


async def test_its_parallelism_is_the_slots_wanted(ready: Running, prober: HttpProber) -> None:
    """And another number is called out with both numbers."""
    wanted, abilities = ready.wanted, ready.abilities
    said = await prober.read(wanted.host, wanted.port, abilities.busy_path, Seconds(5.0))
    health = {abilities.busy_path: said}
    assert ready.engine.check_slots(health, SLOTS) == ""
    wrong = ready.engine.check_slots(health, SLOTS + 5)
    assert str(SLOTS) in wrong
    assert str(SLOTS + 5) in wrong


async def test_a_stream_is_server_sent_events_with_usage_and_an_end(
    ready: Running, session: aiohttp.ClientSession
) -> None:
    """As OpenAI's clients want it."""
    async with session.post(f"{ready.url}/v1/chat/completions", json=chat(8, stream=True)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (await answer.read()).decode().splitlines()
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert any(chunk["choices"] and chunk["choices"][0]["delta"].get("content") for chunk in chunks)
    assert chunks[-1]["usage"]["completion_tokens"] == 8


async def test_as_many_requests_as_slots_run_at_once_and_the_next_waits(
    ready: Running, session: aiohttp.ClientSession
) -> None:
    """All are answered."""
    url = f"{ready.url}/v1/chat/completions"

    async def ask() -> int:
        async with session.post(url, json=chat(60, stream=False)) as answer:
            return len(await answer.read())

    requests = [asyncio.ensure_future(ask()) for _ in range(SLOTS + 1)]
    await until_busy(ready, session, SLOTS)
    assert all(size > 0 for size in await asyncio.gather(*requests))
    await until_busy(ready, session, 0)


async def test_a_stream_whose_client_leaves_frees_its_slot(ready: Running, session: aiohttp.ClientSession) -> None:
    """Long before it would have ended."""
    answer = await session.post(f"{ready.url}/v1/chat/completions", json=chat(1500, stream=True))
    await answer.content.readline()
    await until_busy(ready, session, 1)
    answer.close()
    async with asyncio.timeout(3):
        await until_busy(ready, session, 0)


async def test_a_whole_answer_whose_client_leaves_ends_as_the_abilities_say(
    ready: Running, session: aiohttp.ClientSession
) -> None:
    """At once where the engine always cancels; else its slot stays busy, to the end."""
    asked = chat(300, stream=False) | {"ignore_eos": True}  # long enough for a quick machine, whatever is said
    request = asyncio.ensure_future(session.post(f"{ready.url}/v1/chat/completions", json=asked))
    await until_busy(ready, session, 1)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    if ready.abilities.cancels is Cancels.ALWAYS:
        async with asyncio.timeout(3):
            await until_busy(ready, session, 0)
        return
    assert ready.abilities.cancels is Cancels.STREAMS
    await asyncio.sleep(0.25)  # a cancelled stream is gone after 0.1 s
    assert await busy(ready, session) == 1
    await until_busy(ready, session, 0)


async def test_metrics_count_tokens_and_requests(ready: Running, session: aiohttp.ClientSession) -> None:
    """In names that the adapter reads."""
    before = await metrics(ready, session)
    async with session.post(f"{ready.url}/v1/chat/completions", json=chat(5, stream=False)) as answer:
        assert answer.status == 200
    after = await metrics(ready, session)
    assert (after.running, after.waiting) == (0, 0)
    assert (before.tokens_out_total, after.tokens_out_total) != (None, None)
    assert after.tokens_out_total == (before.tokens_out_total or 0) + 5


async def test_sigterm_ends_it_at_once_also_with_a_stream_running(
    ready: Running, session: aiohttp.ClientSession
) -> None:
    """Who drains is the one in front of it. (Last: the other tests need the process.)"""
    answer = await session.post(f"{ready.url}/v1/chat/completions", json=chat(1500, stream=True))
    await answer.content.readline()
    ready.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(ready.process.wait, 10)
    assert code in (0, -signal.SIGTERM)
    with pytest.raises(aiohttp.ClientError):
        await answer.read()
    assert "Traceback" not in ready.log.read_text()
