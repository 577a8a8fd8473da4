"""From an engine that can answer to the requests that wait for it, by the engine's own clock.

The make-believe engine notes when it could first answer and when requests came. The probe itself (health, and a request
of one token, which it answers at once) is part of the figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import clients, load, seen
from bench.clients import Crowd
from bench.figures import Effort, Figure, Target, percentile
from bench.relume_up import Relume, model, relume_up

CROWD = 1000
LOAD_SECONDS = 0.5
"""After its start the engine says so long that it is not healthy yet."""
LLAMA_SWAP = "llama-swap, elsewhere: 198 to 950 ms"
"""Measured when the plan was made, with real engines (design §11); not in this run."""


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds."""
    load.raise_descriptors()
    starts, crowds, crowd = effort.size(20, 2), effort.size(3, 1), effort.size(CROWD, 50)
    documents = [model(f"one-{index}", able_after=LOAD_SECONDS) for index in range(starts)]
    documents += [model(f"many-{index}", slots=crowd, able_after=3 * LOAD_SECONDS) for index in range(crowds)]
    engines: dict[str, dict[str, Any]] = {}
    with load.scratch() as scratch:
        async with relume_up(Path(scratch) / "up", "\n---\n".join(documents)) as relume:
            for index in range(starts):
                engines[f"one-{index}"] = await answered(relume, f"one-{index}", 1)
            for index in range(crowds):
                engines[f"many-{index}"] = await answered(relume, f"many-{index}", crowd)
            found = await seen.activations(relume)
    ready_at = {name: one.ready_at for name, one in found.items() if one.ready_at is not None}
    ones = [name for name in engines if name.startswith("one")]
    many = [name for name in engines if name.startswith("many")]
    able = [_ms(engines[name]["able_at"], engines[name]["first_request_at"]) for name in ones]
    dispatched = [_ms(ready_at[name], engines[name]["first_request_at"]) for name in ones]
    last = [_ms(ready_at[name], engines[name]["last_request_at"]) for name in many]
    why = f"{len(ones)} starts"
    return [
        Figure("engine able to answer to first dispatch, p50", "ms", percentile(able, 0.5), LLAMA_SWAP, why=why),
        Figure("engine able to answer to first dispatch, p99", "ms", percentile(able, 0.99), LLAMA_SWAP,
               target=Target(25.0), why=why),
        Figure("ready to first dispatch, p50", "ms", percentile(dispatched, 0.5), why=why),
        Figure("ready to first dispatch, p99", "ms", percentile(dispatched, 0.99), target=Target(5.0), why=why),
        Figure(f"ready to the last of {crowd:,} held", "ms", percentile(last, 0.5), target=Target(100.0),
               low=min(last), high=max(last), why=f"{len(last)} starts, {crowd:,} slots; a new connection each"),
    ]  # fmt: skip


async def answered(relume: Relume, name: str, requests: int) -> dict[str, Any]:
    """Ask a model at zero; what its engine noted. It is deleted then."""
    crowd = Crowd(
        relume.address, clients.request("127.0.0.1", clients.body().replace(b'"bench"', f'"{name}"'.encode()))
    )
    try:
        await crowd.ask(requests)
        await crowd.whole(within=60)
    finally:
        crowd.close()
    host, port = await relume.replica(name)
    async with relume.session.get(f"http://{host}:{port}/stats") as answer:
        stats: dict[str, Any] = await answer.json()
    await relume.delete(name)
    return stats


def _ms(begin: float, end: float) -> float:
    return (end - begin) * 1000
