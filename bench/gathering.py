"""What `spec.batching` gains before a real server that takes one request at a time, through a whole `relume up`.

The server is `bench.encoder`, a transformer on one core. Every contender is a model of its own on the same relume; they
take turns, each with its own replica alone at work, asked by so many clients, each for one short text after the other.
CPU is the server's own, from its own clock: on a shared machine it says more than the clock on the wall.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from bench import load
from bench.figures import Effort, Figure, percentile
from bench.relume_up import Relume, relume_up

CLIENTS: Final = 32
PROMISE: Final = "5s"
"""Long enough for a machine that others share: rules make batches smaller when a promise is in danger."""
WORDS: Final = ("cheap", "red", "bicycle", "near", "the", "old", "harbour", "open", "late", "on", "sunday")
PLAIN: Final = "one by one"

BATCHING: Final[Mapping[str, Mapping[str, object] | None]] = {
    PLAIN: None,
    "adaptive": {"rule": "adaptive", "maxSize": CLIENTS, "latency": PROMISE},
    "a fixed 32": {"rule": "fixed", "maxSize": CLIENTS, "latency": PROMISE},
    "aimd-gpu": {"rule": "aimd-gpu", "maxSize": CLIENTS, "latency": PROMISE},
}
"""`spec.batching` of each contender. Without it a replica has one slot, and requests wait in the gateway."""


@dataclass(slots=True)
class _Seen:
    """What came of one contender so far."""

    took: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0


async def run(effort: Effort) -> list[Figure]:
    """Embeddings a second of each way, CPU of each, beside one by one."""
    seen = {name: _Seen() for name in BATCHING}
    documents = "\n---\n".join(_document(name) for name in BATCHING)
    with load.scratch() as scratch:
        async with relume_up(Path(scratch), documents) as relume:
            for name in BATCHING:
                await _ask(relume, _model(name), 1)  # it is started, and warm
            for _ in range(effort.rounds):
                for name in BATCHING:
                    await _round(relume, name, seen[name], effort.size(8, 2))
            batches = {name: await _mean_batch(relume, name) for name, way in BATCHING.items() if way is not None}
    plain = seen[PLAIN]
    figures = []
    for name, one in seen.items():
        what = f"embeddings of a transformer in numpy, {CLIENTS} clients, {name}"
        why = (
            f"p50 {percentile(one.took, 0.5) * 1000:.0f} ms, p99 {percentile(one.took, 0.99) * 1000:.0f} ms, "
            f"{len(one.took):,} requests, batches of {batches.get(name, 1.0):.1f}"
        )
        yardstick = "" if name == PLAIN else PLAIN
        rate, cpu = _rate(one), 1000 * one.cpu / len(one.took)
        figures += [
            Figure(f"{what}: a second", "1/s", rate, yardstick, _rate(plain) if yardstick else None, why=why),
            Figure(f"{what}: CPU of one", "ms", cpu, yardstick,
                   1000 * plain.cpu / len(plain.took) if yardstick else None),
        ]  # fmt: skip
    return figures


def _rate(one: _Seen) -> float:
    return len(one.took) / one.seconds


def _model(name: str) -> str:
    return name.replace(" ", "-")


def _document(name: str) -> str:
    way = BATCHING[name]
    command = ["{python}", "-m", "bench.encoder", "--host", "{host}", "--port", "{port}"]
    options = {
        "command": command, "env": {"PYTHONPATH": str(load.ROOT)}, "warmupPath": "/v1/embeddings",
        "warmupBody": {"model": "m", "input": "one"},
    }  # fmt: skip
    spec: dict[str, object] = {
        "engine": {"type": "command", "options": options},
        "resources": {"cpu": 0.1, "memory": "512Mi"},
        "slots": 1 if way is None else CLIENTS,
        "scaling": {"minReplicas": 1, "maxReplicas": 1},
    }
    if way is not None:
        spec["batching"] = way
    document = {"apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": _model(name)}, "spec": spec}
    return json.dumps(document)


async def _round(relume: Relume, name: str, seen: _Seen, each: int) -> None:
    """All clients ask so often."""
    host, port = await relume.replica(_model(name))
    before, began = await _cpu(relume.session, host, port), time.perf_counter()
    took = await asyncio.gather(*(_client(relume, _model(name), each, seed) for seed in range(CLIENTS)))
    seen.seconds += time.perf_counter() - began
    seen.cpu += await _cpu(relume.session, host, port) - before
    seen.took += [one for client in took for one in client]


async def _client(relume: Relume, model: str, each: int, seed: int) -> list[float]:
    return [await _ask(relume, model, seed * each + number) for number in range(each)]


async def _ask(relume: Relume, model: str, seed: int) -> float:
    """Seconds to the answer to one short text."""
    text = " ".join(random.Random(seed).choices(WORDS, k=6))
    began = time.perf_counter()
    async with relume.session.post(f"{relume.gateway}/v1/embeddings", json={"model": model, "input": text}) as answer:
        told = await answer.json()
        assert answer.status == 200, told
        assert len(told["data"]) == 1
    return time.perf_counter() - began


async def _cpu(session: aiohttp.ClientSession, host: str, port: int) -> float:
    async with session.get(f"http://{host}:{port}/cpu") as answer:
        return float((await answer.json())["seconds"])


async def _mean_batch(relume: Relume, name: str) -> float:
    """Requests in a batch, as the replica's front counts them."""
    host, port = await relume.replica(_model(name))
    async with relume.session.get(f"http://{host}:{port}/.relume/batching") as answer:
        told: dict[str, int] = await answer.json()
    return told["requests"] / max(1, told["batches"])
