"""What an agent tells of its node's GPUs: the driver's word joined with the kubelet's; a real agent over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.kubernetes.node_gpus import NOT_OFFERED, joined
from deploy.kubernetes.pod_resources import Holding
from deploy.local.gpu_readings import GpuSeen
from tests.support.kubelet_socket import GPU, kubelet_socket
from tests.support.nvml import FakeCard, FakeNvml

GI = 1 << 30
CARDS = tuple(GpuSeen(name, "H200", 140 * GI, 0, 0.0, empty=True) for name in ("GPU-a", "GPU-b"))
SPLIT = (
    GpuSeen("GPU-a", "H200", 140 * GI, 0, 0.0, split=True),
    GpuSeen("MIG-1", "H200 MIG 1g.18gb", 16 * GI, 0, None, parent="GPU-a"),
)


@pytest.mark.parametrize(("seen", "holdings", "pods"), [
    pytest.param(CARDS, None, [None, None], id="the kubelet does not tell"),
    pytest.param(CARDS, (), [[], []], id="it has given none"),
    pytest.param(CARDS, (Holding("m", "a", "c", GPU, ("GPU-b",)),), [[], ["m/a"]], id="one"),
    pytest.param(CARDS, (Holding("m", "a", "c", GPU, ("GPU-b::0",)), Holding("m", "b", "c", GPU, ("GPU-b::3",))),
                 [[], ["m/a", "m/b"]], id="shared in turn by two"),
    pytest.param(SPLIT, (Holding("m", "a", "c", "nvidia.com/mig-1g.18gb", ("MIG-1",)),), [[], ["m/a"]], id="MIG"),
    pytest.param(CARDS, (Holding("m", "a", "c", "example.com/nic", ("0000:3b",)),), [[], []], id="no GPU"),
    pytest.param(CARDS, (Holding("m", "a", "c", GPU, ("GPU-a-7",)), Holding("m", "b", "c", GPU, ("GPU-b",))),
                 [None, ["m/b"]], id="ids of its own (HAMi): whose the others are nobody knows"),
])  # fmt: skip
def test_who_has_which(seen: tuple[GpuSeen, ...], holdings: Any, pods: list[list[str] | None]) -> None:
    """None: nobody can tell; empty: nobody has it."""
    assert [one.pods for one in joined(seen, holdings, {})] == pods


@pytest.mark.parametrize(("offered", "sick"), [
    pytest.param((), ["", ""], id="a plugin that offers none begins just now"),
    pytest.param(("GPU-a", "GPU-b"), ["", ""], id="both"),
    pytest.param(("GPU-a::0", "GPU-a::1"), ["", NOT_OFFERED], id="one, shared in turn"),
    pytest.param(("MIG-9",), ["", ""], id="instances tell nothing of cards"),
])  # fmt: skip
def test_what_a_plugin_does_not_offer_is_sick(offered: tuple[str, ...], sick: list[str]) -> None:
    """Where it offers others of the kind."""
    assert [one.sick for one in joined(CARDS, (), {GPU: offered})] == sick


@pytest.mark.needs("podresources")
@pytest.mark.needs("nvml")
@pytest.mark.slow
async def test_a_real_agent_tells_at_once_of_what_changes(tmp_path: Path) -> None:
    """`relume agent` with a library and a kubelet's socket: a pod comes onto a card, ends and leaves a process behind;
    who waits for news hears it within two readings, and who asks to look sees what is now."""
    fake = FakeNvml(tmp_path / "lib", [FakeCard("GPU-a"), FakeCard("GPU-b")])
    with tempfile.TemporaryDirectory(prefix="kubelet-") as short:
        async with kubelet_socket(Path(short)) as kubelet:
            kubelet.offered = ["GPU-a", "GPU-b"]
            kubelet.say()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "deploy.cli.main", "agent", "--events", "memory:", "--data-dir",
                str(tmp_path / "d"),
                "--node-name", "n1", "--admin-port", "0", "--pod-resources", short, "--log-level", "warning",
                env={**os.environ, **fake.build()},
            )  # fmt: skip
            try:
                await story(await admin_of(tmp_path / "d"), fake, kubelet)
            finally:
                process.terminate()
                async with asyncio.timeout(30):
                    assert await process.wait() == 0


async def admin_of(folder: Path) -> str:
    """Where the agent's admin port is, once it is there."""
    async with asyncio.timeout(60):
        while not (folder / "agent/endpoints.json").exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    return f"{json.loads((folder / 'agent/endpoints.json').read_text())['admin']}/v1alpha1/node/gpus"


async def story(url: str, fake: FakeNvml, kubelet: Any) -> None:
    """See the test."""
    async with aiohttp.ClientSession() as session:

        async def ask(after: int) -> dict[str, Any]:
            async with session.get(url, params={"after": after}) as answer:
                assert answer.status == 200, await answer.text()
                return dict(await answer.json())

        async def until(wanted: Any, after: int) -> dict[str, Any]:
            async with asyncio.timeout(30):
                while True:
                    told = await ask(after)
                    if wanted(told):
                        return told
                    after = told["version"]

        told = await until(lambda told: told["known"], 0)
        assert [(one["id"], one["empty"], one["pods"], one["sick"]) for one in told["devices"]] == [
            ("GPU-a", True, [], ""), ("GPU-b", True, [], ""),
        ]  # fmt: skip
        kubelet.given = {"models/chat": ["GPU-b"]}
        kubelet.say()
        fake.cards[1].used = 8 * GI
        fake.say()
        told = await until(lambda told: told["devices"][1]["pods"] and told["devices"][1]["empty"] is False,
                           told["version"])  # fmt: skip
        kubelet.given = {}
        kubelet.say()
        async with session.post(f"{url}/look", json={}) as answer:
            seen = (await answer.json())["devices"][1]
        assert (seen["pods"], seen["empty"]) == ([], False)
        fake.cards[1].used = 0
        fake.say()
        async with session.post(f"{url}/look", json={}) as answer:
            assert (await answer.json())["devices"][1]["empty"] is True
        kubelet.refuses = "no"
        kubelet.say()
        told = await until(lambda told: told["devices"][0]["pods"] is None, told["version"])
        assert [one["sick"] for one in told["devices"]] == ["", ""]
