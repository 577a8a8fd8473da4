"""The producers of docs/examples/producers against a real broker: a model scales from zero and grows by them alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import producers
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.running import Running, running, simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

Command = Callable[[], tuple[str, ...]]


def requests(make: Callable[..., tuple[str, ...]], *words: str, option: str = "--") -> Command:
    """Eleven requests for a quarter of a minute: three replicas of four slots."""
    return lambda: make(*words, f"{option}model", "echo", f"{option}count", "11", f"{option}seconds", "15")


PYTHON, STRUCTURED = "produce.py", "structured.py"
JOBS = ("--model", "echo", "--value", "25", "--target", "10")

CASES = [
    pytest.param(requests(producers.python, PYTHON, "requests"), 3, id="python: requests"),
    pytest.param(
        requests(producers.go, option="-"), 3, id="go: requests, another partitioner", marks=pytest.mark.needs("go")
    ),
    pytest.param(lambda: producers.python(PYTHON, "signal", *JOBS), 3, id="python: a number"),
    pytest.param(lambda: producers.python(PYTHON, "wake", "--model", "echo", "--replicas", "2"), 2, id="python: wake"),
    pytest.param(lambda: producers.python(STRUCTURED, *JOBS), 3, id="python: plain JSON"),
]


@pytest.mark.parametrize(("command", "replicas"), CASES)
async def test_a_model_scales(broker: Broker, tmp_path: Path, command: Command, replicas: int) -> None:
    """From zero to what the events ask for, in one step, and back to zero; no request is sent by HTTP."""
    words = await asyncio.to_thread(command)
    servers = "-servers" if "-model" in words else "--servers"
    kafka = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
    document = simulated(keepAlive="6s")  # what is there for a moment only, a look on a busy machine may miss
    async with running(tmp_path, document, *kafka) as relume:
        await _tended(relume)
        assert (await relume.status())["state"] == "Zero"
        producer = await asyncio.create_subprocess_exec(*words, servers, broker.address)
        await relume.until(lambda status: status["readyReplicas"] == replicas)
        assert await asyncio.wait_for(producer.wait(), 60) == 0
        assert replicas in await _wishes(relume)
        assert max(await _wishes(relume)) == replicas, "no more than what was asked for"
        if "signal" not in words and STRUCTURED not in words[1]:  # a number stands for its half minute
            await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, within=60)
        async with relume.session.get(f"{relume.admin}/dead-letters") as answer:
            assert (await answer.json())["items"] == []


async def _wishes(relume: Running) -> list[int]:
    async with relume.session.get(f"{relume.admin}/decisions", params={"model": "echo"}) as answer:
        return [item["replicas"] for item in (await answer.json())["items"]]


async def _tended(relume: Running) -> None:
    """Strays are put right from the moment on at which relume's group has joined."""
    async with asyncio.timeout(30):
        while True:
            async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
                if "relume_log_tending 1.0" in await answer.text():
                    return
            await asyncio.sleep(0.1)
