"""Gathering single requests: rules for the size of batches on a simulated engine, and the front before a real one.

The real one is llama.cpp with the demo's small model, pooled into embeddings, on one core: each of the clients asks for
one text after the other, straight from the engine and through the front. The engine batches what it is given by itself,
so this shows what the front costs and gains before an engine that needs it least; the simulated engine answers one
request at a time, as plain servers of single models do, and so does the transformer of `bench.gathering`.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from bench import gathering
from bench.figures import Effort, Figure, percentile
from deploy.demo.model import ModelUnavailable, ensure_model
from deploy.local.addresses import Ports
from deploy.simulation.batching import NO_RULE, Part, Rule, arrivals, simulate
from events.units import Seconds
from runtime.core.batching.tuning import State, adaptive, aimd_gpu, begin

WINDOW, PROMISE = Seconds(0.02), Seconds(0.5)
RATES = (20.0, 200.0, 400.0, 50.0, 350.0)
READY_WITHIN = 120.0
CLIENTS = 16
WORDS = ("the", "model", "wakes", "when", "a", "request", "comes", "and", "sleeps", "when", "nobody", "asks")

RULES: dict[str, tuple[State, Rule, bool]] = {
    "a fixed 32": (begin(WINDOW, 32), NO_RULE, True),
    "aimd-gpu": (begin(WINDOW), aimd_gpu, True),
    "adaptive": (begin(WINDOW), adaptive, False),
}


async def run(effort: Effort) -> list[Figure]:
    """The part within the promise by each rule; milliseconds of an embedding, with and without the front."""
    load = arrivals([Part(rate, effort.size(20, 2)) for rate in RATES], seed=0)
    figures = []
    for name, (start, rule, patient) in RULES.items():
        seen = simulate(load, start, rule, PROMISE, patient=patient)
        why = (
            f"{seen.requests:,} requests in steps of {', '.join(f'{rate:g}' for rate in RATES)} a second; p50 "
            f"{seen.p50 * 1000:.0f} ms, p99 {seen.p99 * 1000:.0f} ms, mean batch {seen.mean_batch:.1f}, simulated GPU "
            f"use {seen.gpu_use:.2f}"
        )
        figures.append(Figure(f"within 500 ms, simulated engine, {name}", "%", 100 * seen.within, why=why))
    return [*figures, *await _real(effort), *await gathering.run(effort)]


async def _real(effort: Effort) -> list[Figure]:
    what = f"an embedding, llama.cpp on CPU, {CLIENTS} clients, through the front"
    try:
        weights = await asyncio.to_thread(ensure_model)
    except ModelUnavailable as error:
        return [Figure(what, why=str(error))]
    ports = Ports("127.0.0.1")
    inner, outer = ports.choose(), ports.choose()
    engine = [
        sys.executable, "-m", "runtime.engines.llamacpp_server", "--weights", str(weights), "--port", str(inner),
        "--alias", "m", "--slots", str(CLIENTS), "--context-per-slot", "128", "--threads", "1", "--pooling", "mean",
        "--gpu-layers", "0", "--log-verbosity", "1",
    ]  # fmt: skip
    front = [
        sys.executable, "-m", "runtime.batching.front", "--host", "127.0.0.1", "--port", str(outer), "--engine-port",
        str(inner), "--most", str(CLIENTS), "--promise", "5", "--", *engine,
    ]  # fmt: skip
    async with _process(front), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=READY_WITHIN)) as session:
        await _ready(session, f"http://127.0.0.1:{outer}/health")
        took: dict[int, list[float]] = {inner: [], outer: []}
        rates: dict[int, list[float]] = {inner: [], outer: []}
        for _ in range(effort.rounds):
            for port in (inner, outer):
                began = time.perf_counter()
                found = await _ask_all(session, port, effort.size(6, 1))
                rates[port].append(len(found) / (time.perf_counter() - began))
                took[port] += found
        async with session.get(f"http://127.0.0.1:{outer}/.relume/batching") as answer:
            told = await answer.json()
    beside = {port: percentile(found, 0.5) * 1000 for port, found in took.items()}
    mean = told["requests"] / max(1, told["batches"])
    why = (
        f"{max(rates[outer]):.1f} a second through the front, {max(rates[inner]):.1f} without (best rounds); "
        f"p99 {percentile(took[outer], 0.99) * 1000:.0f} and {percentile(took[inner], 0.99) * 1000:.0f} ms; "
        f"{mean:.1f} texts a batch"
    )
    return [Figure(f"{what}, p50", "ms", beside[outer], "straight from the engine", beside[inner], why=why)]


async def _ask_all(session: aiohttp.ClientSession, port: int, each: int) -> list[float]:
    """Seconds of every answer, of all clients at once."""
    draws = random.Random(port)
    took: list[float] = []

    async def client() -> None:
        for _ in range(each):
            text = " ".join(draws.choices(WORDS, k=16))
            began = time.perf_counter()
            url = f"http://127.0.0.1:{port}/v1/embeddings"
            async with session.post(url, json={"model": "m", "input": text}) as answer:
                told = await answer.json()
                assert answer.status == 200, told
                assert len(told["data"]) == 1
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return took


@asynccontextmanager
async def _process(command: list[str]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(READY_WITHIN):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
