"""LoRA adapters reach the engine: through the node's cache, where they lie, and a real llama.cpp with one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from deploy.demo.model import cached_path
from events.types.phases import ReplicaDrained
from events.types.replicas import ReplicaState
from tests.support import small_lora
from tests.support.flaky_origin import Origin, served
from tests.support.local_cluster import Stage, engine, states
from tests.support.weights_stage import content, weights_stage


def with_adapters(uri: str, *adapters: dict[str, object]) -> dict[str, object]:
    """A model on the fake engine that is given its adapters as vLLM is."""
    return engine("--lora-modules", "{adapters}") | {"weights": {"uri": uri, "adapters": list(adapters)}}


def given(pid: int | None) -> list[str]:
    """The adapters in a process's command line."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return [word for word in words if "=" in word]


async def test_adapters_come_through_the_cache(tmp_path: Path) -> None:
    """Each is fetched beside the weights, given by its name, and in use as long as the replica lives."""
    with served(Origin(content())) as base, served(Origin(content(3, seed=7))) as lora:
        async with weights_stage(tmp_path) as (stage, agent):
            await stage.declare(with_adapters(base.url, {"name": "sql", "uri": lora.url}))
            await stage.grant(0)
            replica = (await stage.ready()).replicas[0]
            (word,) = given(replica.pid)
            name, _, path = word.partition("=")
            assert name == "sql"
            assert await asyncio.to_thread(Path(path).read_bytes) == lora.content
            assert Path(path).is_relative_to(agent.layout.snapshots)
            snapshot = Path(path).relative_to(agent.layout.snapshots).parts[0]
            assert (agent.layout.uses / snapshot).exists()
            await stage.grant()
            await stage.until(lambda state: states(state) == [ReplicaState.DRAINING])
            await stage.say(ReplicaDrained(model="echo", replica="echo-r1-0"))
            await stage.gone()


async def test_adapters_that_lie_here_are_used_there(tmp_path: Path, stage: Stage) -> None:
    """A path is a path; one that is not there fails the start with its name."""
    weights, lora = tmp_path / "w", tmp_path / "l"
    weights.write_bytes(b"w")
    spec = with_adapters(str(weights), {"name": "sql", "uri": str(lora)})
    await stage.declare(spec)
    await stage.grant(0)
    failed = await stage.until(lambda state: state.failures > 0)
    assert failed.reason == "WeightsNotFound"
    assert "adapter sql" in failed.message
    lora.write_bytes(b"l")
    assert given((await stage.ready()).replicas[0].pid) == [f"sql={lora}"]


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.needs("model")
@pytest.mark.parametrize("always", [True, False])
async def test_llamacpp_with_a_real_adapter(tmp_path: Path, stage: Stage, always: bool) -> None:
    """It changes what the model says: of all requests, or of those that ask for it."""
    lora = small_lora.write(tmp_path / "lora.gguf", "blk.29.ffn_down.weight", 1536, 576)
    spec = {
        "engine": {"type": "llamacpp", "options": {"contextPerSlot": 256, "applyAdapters": always}}, "slots": 1,
        "weights": {"uri": str(cached_path()), "adapters": [{"name": "odd", "uri": str(lora)}]},
    }  # fmt: skip
    await stage.declare(spec)
    await stage.grant(0)
    address = (await stage.ready()).replicas[0].address
    plain, asked = await _say(address), await _say(address, ask=True)
    assert ("Paris" in plain) is not always
    assert "Paris" not in asked


async def _say(address: str, *, ask: bool = False) -> str:
    body: dict[str, object] = {"model": "m", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    body |= {"lora": [{"id": 0, "scale": 1.0}]} if ask else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/v1/completions", json=body) as answer,
    ):
        return str((await answer.json())["choices"][0]["text"])
