"""What an agent tells of its node's GPUs: the driver's word joined with the kubelet's; a real agent over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.api.gpushapes import NodeGpusSeen
from deploy.api.problem import ProblemError
from deploy.kubernetes.node_gpus import NOT_OFFERED, STANDS, WAITS, NodeGpus, joined
from deploy.kubernetes.pod_resources import Holding, PodResourcesUnknown
from deploy.local.gpu_readings import GpuReadings, GpuSeen
from deploy.local.inventory import InventoryFailed
from events.clock import SimulatedClock, settle
from events.units import Instant
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


class Scripted:
    """A driver that says what it is told to; None: it fails."""

    def __init__(self) -> None:
        self.says: tuple[GpuSeen, ...] | None = ()

    async def read(self) -> tuple[GpuSeen, ...] | None:
        if self.says is None:
            raise InventoryFailed("it hangs")
        return self.says

    async def close(self) -> None:
        return


class Kubelet:
    """A kubelet that says what it is told to; None: it refuses."""

    def __init__(self) -> None:
        self.says: tuple[Holding, ...] | None = ()

    async def holdings(self) -> tuple[Holding, ...]:
        if self.says is None:
            raise PodResourcesUnknown("no")
        return self.says

    async def allocatable(self) -> dict[str, tuple[str, ...]]:
        return {}


async def test_unknown_is_neither_empty_nor_anybodys() -> None:
    """A driver that fails: what was in use stays so, what was empty is not known, and nothing is gone. A kubelet that
    fails: its last word stands for a while, and then nobody knows."""
    clock, driver, kubelet = SimulatedClock(), Scripted(), Kubelet()
    readings = GpuReadings(clock, driver)
    node = NodeGpus("n1", readings, None, clock)
    node._kubelet = kubelet  # type: ignore[assignment]  # it says the same
    used = replace(CARDS[1], empty=False, used_bytes=8 * GI)
    driver.says = (CARDS[0], used)
    kubelet.says = (Holding("m", "a", "c", GPU, ("GPU-b",)),)

    def told(seen: NodeGpusSeen) -> tuple[bool, list[tuple[bool | None, list[str] | None]]]:
        return seen.known, [(one.empty, one.pods) for one in seen.devices]

    assert told(await node.look()) == (True, [(True, []), (False, ["m/a"])])
    driver.says = None
    assert told(await node.look()) == (True, [(None, []), (False, ["m/a"])])
    driver.says, kubelet.says = (CARDS[0], used), None
    assert told(await node.look()) == (True, [(True, []), (False, ["m/a"])])
    await clock.advance(STANDS)
    assert told(await node.look()) == (True, [(True, None), (False, None)])
    driver.says = ()
    assert told(await node.look()) == (False, [])


async def test_nothing_is_told_before_the_first_reading() -> None:
    """Not even that there are no GPUs; a question with a version of before a restart is answered with what is now."""
    clock, driver = SimulatedClock(Instant(1000.0)), Scripted()
    readings = GpuReadings(clock, driver)
    node = NodeGpus("n1", readings, None, clock)
    asking = asyncio.create_task(node.seen(1000))
    await settle()
    await clock.advance(WAITS)
    with pytest.raises(ProblemError):
        await asking
    asking = asyncio.create_task(node.seen(999))
    await settle()
    driver.says = CARDS
    await readings.look()
    assert [one.id for one in (await asking).devices] == ["GPU-a", "GPU-b"]
    assert (await node.seen(1000)).version == 1001


async def test_memory_that_moves_is_news_now_and_then() -> None:
    """A little is none; more is, once in a while; all else at once."""
    clock, driver = SimulatedClock(Instant(1000.0)), Scripted()
    readings = GpuReadings(clock, driver)
    node = NodeGpus("n1", readings, None, clock)
    versions = []
    for used, pause in ((8 * GI, 0), (9 * GI, 60), (12 * GI, 1), (30 * GI, 1), (60 * GI, 30), (60 * GI, 1)):
        await clock.advance(pause)
        driver.says = (replace(CARDS[0], empty=False, used_bytes=used),)
        versions.append((await node.look()).version)
    driver.says = (replace(CARDS[0], empty=False, used_bytes=60 * GI, sick="XID 79"),)
    versions.append((await node.look()).version)
    assert [one - versions[0] for one in versions] == [0, 0, 1, 1, 2, 2, 3]


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
        fake.driver = False
        fake.say()
        async with session.post(f"{url}/look", json={}) as answer:
            told = await answer.json()
        assert told["known"]  # a driver that fails just now is not one that sees no GPUs
        assert [(one["empty"], one["pods"]) for one in told["devices"]] == [(None, []), (None, [])]
