"""From the first held request to the start command: wish and grant both recorded on the way, in a real `relume up`.

Instants are those of the event log: the arrival of the request that waits longest, and the beginning of the phase
`spawn`. The models' command is a sleep, so that no engine's start takes the machine away from what is measured.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bench import clients, load, seen
from bench.clients import Crowd, until
from bench.figures import Effort, Figure, Target, percentile
from bench.relume_up import Relume, relume_up

BURST = 1000
SEEN_WITHIN = 20.0
GATE = Target(10.0)
"""Milliseconds at the 99th percentile, design §11."""


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds, at the median and the 99th percentile."""
    load.raise_descriptors()
    singles, bursts, crowd = effort.size(100, 3), effort.size(10, 1), effort.size(BURST, 50)
    names = [f"single-{index}" for index in range(singles)] + [f"burst-{index}" for index in range(bursts)]
    with load.scratch() as scratch:
        folder = Path(scratch)
        commits = seen.TwoCommits(folder / "plain")
        plain = []
        async with relume_up(folder / "up", "\n---\n".join(sleeper(name) for name in names)) as relume:
            for name in names:
                await activate(relume, name, crowd if name.startswith("burst") else 1)
                plain.append(commits.seconds() * 1000)
            found = await seen.activations(relume)
        commits.close()
    figures = _figures("first held request to start command", waits(found, "single"), plain)
    return figures + _figures(f"the same, first of {crowd:,} at once", waits(found, "burst"), plain)


async def activate(relume: Relume, name: str, requests: int) -> None:
    """Ask a model at zero, see it start, leave, and clear it away."""
    sent = clients.request("127.0.0.1", clients.body().replace(b'"bench"', f'"{name}"'.encode()))
    crowd = Crowd(relume.address, sent)
    try:
        await crowd.ask(requests, at_once=requests)
        await until(lambda: _starting(relume, name), SEEN_WITHIN)
    finally:
        crowd.close()
    await relume.delete(name)
    await asyncio.sleep(0.1)  # the end of its process is not the next one's business


async def _starting(relume: Relume, name: str) -> bool:
    async with relume.session.get(f"{relume.admin}/models/{name}") as answer:
        answer.raise_for_status()
        return bool((await answer.json())["status"]["replicas"])


def waits(found: dict[str, seen.Activation], prefix: str) -> list[float]:
    return [
        (one.spawned_at - one.arrived_at) * 1000
        for name, one in found.items()
        if name.startswith(prefix) and one.arrived_at is not None and one.spawned_at is not None
    ]


def _figures(what: str, waits: list[float], plain: list[float]) -> list[Figure]:
    yardstick = "two SQLite commits"
    why = f"{len(waits)} activations"
    return [
        Figure(f"{what}, p50", "ms", percentile(waits, 0.5), yardstick, percentile(plain, 0.5), why=why),
        Figure(f"{what}, p99", "ms", percentile(waits, 0.99), yardstick, percentile(plain, 0.99), GATE, why=why),
    ]


def sleeper(name: str) -> str:
    command = ["sh", "-c", "exec sleep 600", "{port}"]
    return json.dumps({
        "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name},
        "spec": {
            "engine": {"type": "command", "options": {"command": command}},
            "resources": {"cpu": 0.01, "memory": "16Mi"}, "slots": 1000, "scaling": {"minReplicas": 0},
            "coldStart": {"hold": {"maxRequests": 2000}},
        },
    })  # fmt: skip
