"""A whole relume whose models sleep: two of them share one card, and neither starts cold twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.running import Running, running, simulated

SLEEPS = """  resources: {cpu: 0.1, memory: 64Mi, gpus: 1}
  coldStart: {sleep: {level: 2, keepAlive: 10m}, hold: {maxWait: 2m}}"""
PATIENCE = 90.0


def asleep(status: dict[str, Any]) -> bool:
    """At zero, with one replica that sleeps."""
    return status["state"] == "Zero" and status["sleepingReplicas"] == 1


def woke(status: dict[str, Any]) -> bool:
    """Its last start was a wake."""
    return [phase["phase"] for phase in status["lastStart"]["phases"]] == ["wake", "warmup"]


async def pids(relume: Running) -> dict[str, int]:
    """Of all replicas."""
    return {replica["metadata"]["name"]: replica["status"]["pid"] for replica in await relume.replicas()}


async def test_two_models_take_turns_on_one_card(tmp_path: Path) -> None:
    """Each starts cold once; then whoever is asked is woken, once the other's card is free, in the same process."""
    models = [simulated(name, options="startTime: 1s", extra=SLEEPS, keepAlive="1s") for name in ("a", "b")]
    async with running(tmp_path, "---\n".join(models), "--gpus", "1", "--sleep-memory", "1Gi") as relume:
        for name in ("a", "b"):
            assert (await relume.chat(name)).status == 200
            await relume.until(asleep, name, PATIENCE)
        before = await pids(relume)
        assert len(before) == 2
        answers = await asyncio.gather(relume.chat("a"), relume.chat("b"))
        assert [answer.status for answer in answers] == [200, 200]
        for name in ("a", "b"):
            await relume.until(asleep, name, PATIENCE)
            assert woke(await relume.status(name))
        assert await pids(relume) == before


async def test_who_wakes_as_another_is_started_cold_and_the_client_waits(tmp_path: Path) -> None:
    """A wake that goes wrong costs a cold start, never a wrong answer or an error."""
    model = simulated("a", options="startTime: 300ms, wakesWrong: true", extra=SLEEPS, keepAlive="1s")
    async with running(tmp_path, model, "--gpus", "1", "--sleep-memory", "1Gi") as relume:
        assert (await relume.chat("a")).status == 200
        await relume.until(asleep, "a", PATIENCE)
        before = await pids(relume)
        answer = await relume.chat("a")
        assert answer.status == 200
        assert "!" not in (await answer.json())["choices"][0]["message"]["content"]
        assert await pids(relume) != before
