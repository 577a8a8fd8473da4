"""The producers of docs/examples/producers against a real broker: models scale from zero and grow by them alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support import producers
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.openai_clients import together
from tests.support.running import Running, running, simulated

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

Words = tuple[str, ...]
Make = Callable[..., Words]

PYTHON, STRUCTURED = "produce.py", "structured.py"


def requests(make: Make, *words: str, model: str, option: str = "--") -> Words:
    """Eleven requests for a quarter of a minute: three replicas of four slots."""
    return make(*words, f"{option}model", model, f"{option}count", "11", f"{option}seconds", "15")


def number(*words: str, model: str) -> Words:
    """25 jobs at ten a replica: three replicas."""
    return producers.python(*words, "--model", model, "--value", "25", "--target", "10")


@dataclass(frozen=True)
class Case:
    """A producer's command, the replicas that its events ask for, and whether they are over soon. (A number stands for
    its half minute.)"""

    words: Words
    replicas: int
    passes: bool = True


def python_cases() -> dict[str, Case]:
    """By model."""
    wake = producers.python(PYTHON, "wake", "--model", "woken", "--replicas", "2")
    return {
        "asked": Case(requests(producers.python, PYTHON, "requests", model="asked"), 3),
        "counted": Case(number(PYTHON, "signal", model="counted"), 3, passes=False),
        "woken": Case(wake, 2),
        "plain": Case(number(STRUCTURED, model="plain"), 3, passes=False),
    }


async def test_models_scale(broker: Broker, tmp_path: Path) -> None:
    """Requests, a number, a wake and a number as plain JSON, each for a model of its own."""
    await _scale(broker, tmp_path, await asyncio.to_thread(python_cases))


@pytest.mark.needs("go")
async def test_a_model_scales_by_another_partitioner(broker: Broker, tmp_path: Path) -> None:
    """Go's client puts most keys elsewhere."""
    words = await asyncio.to_thread(partial(requests, producers.go, model="asked", option="-"))
    await _scale(broker, tmp_path, {"asked": Case(words, 3)})


async def _scale(broker: Broker, folder: Path, cases: Mapping[str, Case]) -> None:
    """Each model goes from zero to what its producer's events ask for, in one step, and back to zero; no request is
    sent by HTTP."""
    kafka = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
    # keepAlive: what is there for a moment only, a look on a busy machine may miss
    documents = together(*(simulated(model, keepAlive="6s") for model in cases))
    async with running(folder, documents, *kafka) as relume:
        await _tended(relume)
        async with asyncio.TaskGroup() as tasks:
            for model, case in cases.items():
                tasks.create_task(_one(relume, broker, model, case))
        async with relume.session.get(f"{relume.admin}/dead-letters") as answer:
            assert (await answer.json())["items"] == []


async def _one(relume: Running, broker: Broker, model: str, case: Case) -> None:
    assert (await relume.status(model))["state"] == "Zero"
    servers = "-servers" if "-model" in case.words else "--servers"
    producer = await asyncio.create_subprocess_exec(*case.words, servers, broker.address)
    await relume.until(lambda status: status["readyReplicas"] == case.replicas, model, within=60)
    assert await asyncio.wait_for(producer.wait(), 60) == 0
    wishes = await _wishes(relume, model)
    assert max(wishes) == case.replicas, "no more than what was asked for"
    if case.passes:
        await relume.until(lambda status: status["state"] == "Zero" and status["replicas"] == 0, model, within=60)


async def _wishes(relume: Running, model: str) -> list[int]:
    async with relume.session.get(f"{relume.admin}/decisions", params={"model": model}) as answer:
        return [item["replicas"] for item in (await answer.json())["items"]]


async def _tended(relume: Running) -> None:
    """Strays are put right from the moment on at which relume's group has joined."""
    async with asyncio.timeout(30):
        while True:
            async with relume.session.get(f"{relume.server.admin_url}/metrics") as answer:
                if "relume_log_tending 1.0" in await answer.text():
                    return
            await asyncio.sleep(0.1)
