"""Sleep between warm and cold, in a real `relume up`: time to first token, CPU, and the memory that a sleeper holds.

llama.cpp with the demo's small model is parked as it is; each round has a model of its own: cold, warm, asleep, woken.
The simulated engine takes a known time to start and to wake, at level 1 and at level 2, so what is left is relume's.
Cold is kind to cold: relume runs, programs and weights are in the page cache, and nobody else wants the cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import load, machine
from bench.clients import until
from bench.figures import Effort, Figure, median
from bench.relume_up import Relume, relume_up
from deploy.demo.model import ModelUnavailable, ensure_model
from deploy.local.usage import measure_trees

WITHIN = 120.0
"""Seconds for anything; a busy machine takes some."""
START, WAKE = 0.5, 0.1
"""Seconds that the simulated engine takes by itself. Chosen: far above what is relume's."""
MIB = 1 << 20


@dataclass
class Seen:
    """Of one tier: seconds to the first token, and CPU seconds of relume and of the replica until then."""

    seconds: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)


@dataclass
class Tiers:
    """What was seen of one engine. `held` and `awake`: bytes of the process, as the budget for sleepers counts them."""

    cold: Seen = field(default_factory=Seen)
    warm: Seen = field(default_factory=Seen)
    woken: Seen = field(default_factory=Seen)
    held: list[float] = field(default_factory=list)
    awake: list[float] = field(default_factory=list)


async def run(effort: Effort) -> list[Figure]:
    """Seconds and CPU seconds, medians; MiB."""
    rounds = effort.size(5, 1)
    figures = []
    try:
        weights = await asyncio.to_thread(ensure_model)
        llamacpp = {"type": "llamacpp", "options": {"contextPerSlot": 256}}
        figures += _real(await _tiers(rounds, llamacpp, weights=str(weights)), weights.stat().st_size)
    except ModelUnavailable as error:
        figures.append(Figure("llama.cpp: first token, woken", "s", why=str(error)))
    options = {"startTime": f"{START:g}s", "wakeTime": f"{WAKE:g}s"}
    for level in (2,) if effort.quick else (1, 2):
        figures += _simulated(await _tiers(rounds, {"type": "simulated", "options": options}, level), level)
    return figures


def _real(seen: Tiers, size: int) -> list[Figure]:
    words = "cold, weights in the page cache"
    cold, warm, woken = (median(one.seconds) for one in (seen.cold, seen.warm, seen.woken))
    spent = [
        median([a + b for a, b in zip(one.ours, one.engine, strict=True)]) for one in (seen.cold, seen.warm, seen.woken)
    ]
    return [
        Figure("llama.cpp: first token, woken", "s", woken, words, cold, low=min(seen.woken.seconds),
               high=max(seen.woken.seconds)),
        Figure("llama.cpp: first token, woken", "s", woken, "warm", warm),
        Figure("llama.cpp: CPU to the first token, woken", "s CPU", spent[2], words, spent[0]),
        Figure("llama.cpp: CPU to the first token, woken", "s CPU", spent[2], "warm", spent[1]),
        Figure("llama.cpp: memory held asleep", "MiB", median(seen.held) / MIB, "awake", median(seen.awake) / MIB,
               why=f"without the page cache; its weights are {size / MIB:.0f} MiB"),
    ]  # fmt: skip


def _simulated(seen: Tiers, level: int) -> list[Figure]:
    what = f"simulated, level {level}"
    woken = median(seen.woken.seconds)
    return [
        Figure(f"{what}: first token, woken", "s", woken, f"cold (the engine's start {START:g} s)",
               median(seen.cold.seconds)),
        Figure(f"{what}: beyond the engine's own {WAKE * 1000:g} ms", "ms", (woken - WAKE) * 1000, "warm",
               median(seen.warm.seconds) * 1000),
        Figure(f"{what}: CPU of relume alone, woken", "s CPU", median(seen.woken.ours), "cold",
               median(seen.cold.ours)),
    ]  # fmt: skip


def _document(name: str, engine: dict[str, Any], level: int, weights: str) -> str:
    spec: dict[str, Any] = {
        "engine": engine, "slots": 1, "resources": {"cpu": 0.1, "memory": "1Gi"},
        "scaling": {"minReplicas": 0, "maxReplicas": 1, "keepAlive": "1s"},
        "coldStart": {"sleep": {"level": level, "keepAlive": "1h"}},
    }  # fmt: skip
    if weights:
        spec["weights"] = {"uri": weights}
    return json.dumps({"apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": spec})


async def _tiers(rounds: int, engine: dict[str, Any], level: int = 1, weights: str = "") -> Tiers:
    """A model of its own each round, deleted at its end."""
    names = [f"round-{index}" for index in range(rounds)]
    seen = Tiers()
    documents = "\n---\n".join(_document(name, engine, level, weights) for name in names)
    with load.scratch() as scratch:
        async with relume_up(Path(scratch) / "up", documents, more=("--sleep-memory", "2Gi")) as relume:
            for name in names:
                await _round(relume, name, seen)
    return seen


async def _round(relume: Relume, name: str, seen: Tiers) -> None:
    await _first_token(relume, name, seen.cold, 0)
    pid = (await _status(relume, name))["pid"]
    await _first_token(relume, name, seen.warm, pid)
    seen.awake.append(_memory(pid))

    async def asleep() -> bool:
        return bool((await _status(relume, name))["state"] == "Sleeping")

    await until(asleep, WITHIN)
    seen.held.append(_memory(pid))
    await _first_token(relume, name, seen.woken, pid)
    if (await _status(relume, name))["pid"] != pid:
        raise RuntimeError(f"{name} was not woken but started anew")
    await relume.delete(name)


async def _first_token(relume: Relume, name: str, seen: Seen, pid: int) -> None:
    """Ask for a stream and leave it after its first chunk. `pid`: the replica's, 0 where it has none yet."""
    before, own, began = machine.tree_cpu_seconds(pid) if pid else 0.0, relume.cpu_seconds(), time.monotonic()
    asked = {"model": name, "stream": True, "max_tokens": 8, "prompt": "Once upon a time"}
    async with relume.session.post(f"{relume.gateway}/v1/completions", json=asked) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                break
        else:
            raise RuntimeError(f"{name} said nothing")
        seen.seconds.append(time.monotonic() - began)
        seen.ours.append(relume.cpu_seconds() - own)
        found = pid or (await _status(relume, name))["pid"]
        seen.engine.append(machine.tree_cpu_seconds(found) - before)
        await answer.read()


async def _status(relume: Relume, name: str) -> dict[str, Any]:
    async with relume.session.get(f"{relume.admin}/replicas") as answer:
        for item in (await answer.json())["items"]:
            if item["spec"]["model"] == name:
                status: dict[str, Any] = item["status"]
                return status
    raise LookupError(f"no replica of {name}")


def _memory(pid: int) -> float:
    """As relume counts it: of all that runs below the replica's shim."""
    shim = psutil.Process(pid).ppid()
    return measure_trees([shim])[shim].memory_bytes
