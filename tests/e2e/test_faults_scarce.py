"""Two models that want the same GPU: who gets it, what the other one and its user are told, and that nothing flaps."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import cli, recorded
from tests.support.openai_clients import together
from tests.support.running import Running, running, simulated

pytestmark = pytest.mark.slow

QUICK = "startTime: 100ms, timeToFirstToken: 10ms, interTokenLatency: 5ms, maxTokens: 4"


def on_a_gpu(name: str, priority: int, keep_alive: str) -> str:
    """A model that needs a whole GPU."""
    extra = f"  resources: {{cpu: 0.1, memory: 64Mi, gpus: 1}}\n  priority: {priority}"
    return simulated(
        name, options=QUICK, extra=extra, maxReplicas=1, keepAlive=keep_alive, stableWindow="1s", panicWindow="1s"
    )


async def changes(relume: Running, topic: str, kind: str, model: str) -> list[Any]:
    """The numbers of replicas that were recorded of a model, in order, without repetitions."""
    events = [event["data"] for event in await recorded(relume, topic, kind) if event["data"]["model"] == model]
    numbers = [one["replicas"] if kind == "wish.decided" else len(one["replicas"]) for one in events]
    return [number for number, _ in itertools.groupby(numbers)]


async def test_the_one_with_priority_keeps_it(tmp_path: Path) -> None:
    """The more important model has the only GPU and keeps it; the other's request is held and told of the shortage in
    get and explain; nothing flaps for ten seconds; when the GPU is free, it is served."""
    documents = together(on_a_gpu("first", 200, "2s"), on_a_gpu("second", 100, "2s"))
    async with running(tmp_path, documents, "--gpus", "1") as relume:
        assert (await relume.chat("first")).status == 200
        stop = asyncio.Event()

        async def busy() -> None:
            while not stop.is_set():
                assert (await relume.chat("first")).status == 200
                await asyncio.sleep(0.1)

        load = asyncio.create_task(busy())
        waiting = asyncio.create_task(relume.chat("second"))
        await relume.until(lambda status: status["shortage"] == 1 and status["heldRequests"] == 1, "second")
        await asyncio.sleep(10)
        status = await relume.status("second")
        assert (status["wish"], status["granted"], status["readyReplicas"]) == (1, 0, 0)
        assert "gpu" in f"{status['reason']} {status['message']}".lower(), status
        explained = await cli(relume, "explain", "second")
        assert "gpu" in explained.out.lower(), explained.out
        listed = await cli(relume, "get", "models", "-o", "json")
        assert '"shortage": 1' in listed.out
        assert not waiting.done()
        for model, wishes, grants in (("first", 1, 1), ("second", 1, 0)):
            assert (await changes(relume, "relume.decisions", "wish.decided", model))[-1] == wishes
            assert len(await changes(relume, "relume.decisions", "wish.decided", model)) <= 2
            granted = await changes(relume, "relume.grants", "grant.decided", model)
            assert granted[-1:] in ([grants], [])
            assert len(granted) <= 2
        stop.set()
        await load
        assert (await asyncio.wait_for(waiting, 30)).status == 200
        assert (await relume.status("second"))["shortage"] == 0


async def test_who_comes_first_when_it_is_free(tmp_path: Path) -> None:
    """Two models wait for a GPU that a third one uses, which is not cut: the more important one gets it first, though
    it came later, and the other one after it."""
    documents = together(on_a_gpu("holder", 100, "1s"), on_a_gpu("low", 50, "1s"), on_a_gpu("high", 200, "1s"))
    async with running(tmp_path, documents, "--gpus", "1") as relume:
        long = asyncio.create_task(relume.chat("holder", max_tokens=600))  # about 3 s
        await relume.until(lambda status: status["runningRequests"] == 1, "holder")
        served: list[str] = []

        async def ask(model: str) -> int:
            status = (await relume.chat(model)).status
            served.append(model)
            return status

        asked = [asyncio.create_task(ask("low"))]
        await relume.until(lambda status: status["shortage"] == 1, "low")
        asked.append(asyncio.create_task(ask("high")))
        await relume.until(lambda status: status["shortage"] == 1, "high")
        assert not long.done()
        assert (await long).status == 200
        assert await asyncio.wait_for(asyncio.gather(*asked), 60) == [200, 200]
        assert served == ["high", "low"]
