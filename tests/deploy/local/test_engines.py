"""The engines that are shipped, started by the local cluster as users start them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import uvloop

from deploy.demo.model import cached_path
from events.names import Topic
from events.types.metrics import ReplicaMetrics
from events.types.replicas import ReplicaStatus
from events.units import Instant
from tests.support.local_cluster import PATIENCE, Stage


async def complete(replica: ReplicaStatus, prompt: str) -> str:
    """Ask a replica for a few tokens."""
    body = {"model": "echo", "prompt": prompt, "max_tokens": 4}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{replica.address}/v1/completions", json=body) as answer,
    ):
        assert answer.status == 200
        text: str = (await answer.json())["choices"][0]["text"]
        return text


async def test_simulated(stage: Stage) -> None:
    """The simulated engine starts, answers, and tells how busy it is and how many slots it has."""
    options = {"startTime": "100ms", "timeToFirstToken": "5ms", "interTokenLatency": "1ms"}
    await stage.declare({"engine": {"type": "simulated", "options": options}, "slots": 3})
    await stage.grant(0)
    replica = (await stage.ready()).replicas[0]
    assert (replica.slots, replica.busy_path != "") == (3, True)
    assert await complete(replica, "hello")
    async with asyncio.timeout(PATIENCE):
        while not any(told_when_idle(one) for one in await stage.history(Topic.METRICS)):
            await stage.clock.sleep_until(Instant(stage.clock.now() + 0.02))


async def test_simulated_reads_no_weights(stage: Stage) -> None:
    """The simulated engine has no use for weights, so a declaration that names some starts without them."""
    await stage.declare({"engine": {"type": "simulated"}, "weights": {"uri": "file:///models/no-such-file"}})
    await stage.grant(0)
    await stage.ready()


def told_when_idle(data: object) -> bool:
    """Whether these are metrics of after the request: nothing runs, and tokens were made."""
    return isinstance(data, ReplicaMetrics) and data.running == 0 and (data.tokens_out_total or 0) > 0


@pytest.mark.slow
@pytest.mark.needs("model")
async def test_llamacpp(stage: Stage) -> None:
    """A real model starts, its slots agree with the declaration, it answers, and it ends without a trace."""
    await stage.declare(
        {"engine": {"type": "llamacpp"}, "weights": {"uri": cached_path().resolve().as_uri()}, "slots": 2}
    )
    await stage.grant(0)
    replica = (await stage.ready()).replicas[0]
    assert replica.busy_path == "/slots"
    assert await complete(replica, "The capital of France is")
    await stage.grant()
    await stage.until(lambda state: bool(state.replicas) and state.replicas[0].state == "Draining")


def test_uvloop(tmp_path: Path) -> None:
    """All of it works on the loop that relume runs on."""

    async def run() -> None:
        stage = Stage(tmp_path / "data")
        await stage.cluster.start()
        await stage.declare({"engine": {"type": "simulated"}})
        await stage.grant(0, 1)
        await stage.ready(2)
        await stage.close()

    uvloop.run(run())
