"""What agents see of GPUs, followed over HTTP: told in the log once, remembered, asked for before cards go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from aiohttp import web

from deploy.kubernetes import gpu_states
from deploy.kubernetes.agents import Agents
from deploy.kubernetes.gpu_states import GpuStates
from deploy.kubernetes.occupied import Left
from deploy.kubernetes.views import ContainerView, PodView
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.log import Query
from events.names import Topic
from events.types.gpus import GpusObserved
from events.writer import EventWriter
from tests.support.waiting import until

LABELS = {"app.kubernetes.io/component": "agent", "app.kubernetes.io/name": "relume"}


def device(name: str, *, empty: bool | None = True, pods: list[str] | None = None, sick: str = "") -> dict[str, Any]:
    """As an agent tells of one."""
    return {
        "id": name, "product": "H200", "memoryBytes": 100, "usedBytes": 0 if empty else 50, "empty": empty,
        "processes": 0, "pods": pods, "sick": sick, "parent": "", "split": False,
    }  # fmt: skip


class FakeAgent:
    """Answers at once, or when what it knows has changed."""

    def __init__(self) -> None:
        self.answer: Mapping[str, Any] = {"node": "n1", "version": 0, "known": False, "devices": [], "claimed": []}
        self.changed = asyncio.Event()
        self.silent = self.hasty = False
        self.asked = 0

    def tell(self, *devices: Mapping[str, Any], known: bool = True, claimed: list[Any] | None = None) -> None:
        """From now on this."""
        version = self.answer["version"] + 1
        self.answer = {"node": "n1", "version": version, "known": known, "devices": list(devices),
                       "claimed": claimed or []}  # fmt: skip
        self.changed.set()

    async def seen(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.silent:
            return web.Response(status=500)
        known = self.answer["version"]
        if str(known) == request.query["after"] and not self.hasty:
            self.changed.clear()
            await self.changed.wait()
        return web.json_response(self.answer)

    async def look(self, _: web.Request) -> web.Response:
        return web.Response(status=500) if self.silent else web.json_response(self.answer)


class Stage:
    """The follower, its agent's pod, and the log."""

    def __init__(self, agent: FakeAgent, pods: list[PodView]) -> None:
        self.agent = agent
        self.pods = pods
        self.log = MemoryEventLog(SystemClock())
        self.nodes: list[str] = []
        clock = SystemClock()
        self.agents = Agents(cast("Any", self.pods), "models", "secret")
        self.states = GpuStates(self.agents, self.log, EventWriter("tests", clock), clock, self.nodes.append)

    async def told(self) -> list[GpusObserved]:
        """All that stands in the log."""
        return [one.envelope.data async for one in self.log.read(Query(topic=Topic.CARDS))
                if isinstance(one.envelope.data, GpusObserved)]  # fmt: skip


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """One agent on n1, followed."""
    agent = FakeAgent()
    app = web.Application()
    app.router.add_get("/v1alpha1/node/gpus", agent.seen)
    app.router.add_post("/v1alpha1/node/gpus/look", agent.look)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pod = PodView(name="agent", namespace="models", uid="1", node="n1", ip="127.0.0.1", running=True, labels=LABELS,
                  containers=(ContainerView("agent", ((runner.addresses[0][1], ""),)),))  # fmt: skip
    made = Stage(agent, [pod])
    running = asyncio.create_task(made.states.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.agents.close()
        await runner.cleanup()


async def heard(stage: Stage, wanted: Any) -> GpusObserved:
    """What is known of n1, once it is so."""
    await until(lambda: (told := stage.states.of("n1")) is not None and wanted(told))
    found = stage.states.of("n1")
    assert found is not None
    return found


async def test_each_change_is_told_once_and_the_node_is_looked_at(stage: Stage) -> None:
    """Of one agent one question waits; what it says again is no news; its pods are remembered after their end."""
    stage.agent.tell(device("GPU-a", empty=False, pods=["models/chat"]), device("GPU-b", pods=[]))
    told = await heard(stage, lambda told: told.gpus)
    assert (told.known, [one.pods for one in told.gpus]) == (True, [("models/chat",), ()])
    stage.agent.tell(device("GPU-a", empty=False, pods=[]), device("GPU-b", pods=[], sick="XID 79"))
    told = await heard(stage, lambda told: told.gpus[0].unaccounted)
    asked = stage.agent.asked
    stage.agent.tell(*stage.agent.answer["devices"])
    await until(lambda: stage.agent.asked > asked)
    found: list[GpusObserved] = []
    while not found or found[-1] != told:
        found = await stage.told()
        await asyncio.sleep(0.02)
    assert len(found) == len(set(found))
    assert set(stage.nodes) == {"n1"}


async def test_a_sick_card_is_that_of_its_pod(stage: Stage) -> None:
    """And of no other's."""
    stage.agent.tell(
        device("GPU-a", empty=False, pods=["models/chat"], sick="XID 79"), device("GPU-b", pods=["models/b"])
    )
    await heard(stage, lambda told: told.gpus)
    pod = PodView(name="chat", namespace="models", uid="2", node="n1")
    assert stage.states.sick(pod) == "GPU GPU-a: XID 79"
    assert stage.states.sick(PodView(name="b", namespace="models", uid="3", node="n1")) == ""
    assert stage.states.sick(PodView(name="chat", namespace="models", uid="2", node="n2")) == ""


async def test_claims_are_named_by_their_drivers_devices(stage: Stage) -> None:
    """And while one cannot be named, whose the others are is not known."""
    names = {("pool", "gpu-0"): "GPU-a"}
    stage.states.named = lambda pool, name: names.get((pool, name))
    claim = {"pod": "models/c", "driver": "gpu.nvidia.com", "pool": "pool", "device": "gpu-0"}
    stage.agent.tell(device("GPU-a", empty=False, pods=[]), device("GPU-b", empty=False, pods=[]), claimed=[claim])
    told = await heard(stage, lambda told: told.gpus)
    assert [one.pods for one in told.gpus] == [("models/c",), ()]
    other = claim | {"device": "gpu-1", "pod": "models/d"}
    stage.agent.tell(device("GPU-a", pods=[]), device("GPU-b", empty=False, pods=[]), claimed=[claim, other])
    told = await heard(stage, lambda told: told.gpus[1].pods is None)
    assert (told.gpus[0].pods, told.gpus[1].unaccounted) == (("models/c",), False)


async def test_a_card_is_waited_for_until_it_is_seen_empty(stage: Stage) -> None:
    """Also while the agent is silent: unknown is not empty. Then it comes back, and the card is."""
    stage.agent.tell(device("GPU-a", empty=False, pods=["models/job-0"]), device("GPU-b", pods=[]))
    await heard(stage, lambda told: told.gpus)
    stage.agent.tell(device("GPU-a", empty=False, pods=[]), device("GPU-b", pods=[]))
    waiting = asyncio.create_task(stage.states.until_empty([Left("n1", "models/job-0", ("gpu-0",))]))
    await heard(stage, lambda told: told.gpus[0].unaccounted)
    stage.agent.silent = True
    await asyncio.sleep(1.2)  # more than the pause between two looks: it has looked, and nobody answered
    assert not waiting.done()
    stage.agent.tell(device("GPU-a", pods=[]), device("GPU-b", pods=[]))
    await asyncio.sleep(1.2)
    assert not waiting.done()
    stage.agent.silent = False
    async with asyncio.timeout(10):
        await waiting


async def test_without_an_agent_nobody_is_waited_for(stage: Stage) -> None:
    """Nor for one that sees no GPUs; what an agent that was taken away has said stands no more for cards to come."""
    stage.agent.tell(known=False)
    await heard(stage, lambda told: not told.known)
    async with asyncio.timeout(10):
        await stage.states.until_empty([Left("n1", "models/job-0", ("gpu-0",))])
        await stage.states.until_empty([Left("n9", "models/job-0", ("gpu-0",))])


async def test_an_agent_that_goes_takes_its_word_along(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once, since it may only be upgraded: until then nothing counts as empty. Then, however, a stranger that
    was seen bars nothing any more; the log says that nothing is known."""
    stage.agent.tell(device("GPU-a", empty=False, pods=[]))
    await heard(stage, lambda told: told.gpus[0].unaccounted)
    stage.pods.clear()
    waiting = asyncio.create_task(stage.states.until_empty([Left("n1", "models/job-0", ())]))
    await asyncio.sleep(1.2)  # more than the pause between two looks
    assert stage.states.of("n1") is not None
    assert not waiting.done()
    monkeypatch.setattr(gpu_states, "FORGET_AFTER", 0.0)
    await until(lambda: stage.states.of("n1") is None)
    found: list[GpusObserved] = []
    async with asyncio.timeout(10):
        while not found or found[-1].known:
            found = await stage.told()
            await asyncio.sleep(0.02)
    assert found[-1] == GpusObserved(node="n1", known=False)
    async with asyncio.timeout(10):
        await waiting


NONSENSE: tuple[Any, ...] = (
    {"version": "new"}, {"version": float("inf")}, {"version": None}, {"devices": 5}, {"devices": [5]},
    {"claimed": None}, {"devices": [{}]}, {"claimed": [{"driver": "gpu.nvidia.com", "pool": "p", "device": "d"}]},
    {"claimed": [{"driver": "gpu.nvidia.com", "pool": "p", "device": "d", "pod": 5}]},
    {"devices": [device("GPU-a")] * 2},
    *({"devices": [device("GPU-a") | {field: value}]} for field, value in (
        ("id", 5), ("product", None), ("memoryBytes", -1), ("memoryBytes", "much"), ("usedBytes", 1 << 60),
        ("usedBytes", 0.5), ("empty", "no"), ("processes", -1), ("pods", "models/chat"), ("pods", [5]), ("split", "x"),
    )),
)  # fmt: skip
"""What of an answer is wrong."""


async def test_an_agent_that_tells_nonsense_is_not_believed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said before stands, nothing is empty by it, it goes on being asked, and nothing ends for it."""
    monkeypatch.setattr(gpu_states, "AGAIN", 0.01)
    monkeypatch.setattr(gpu_states, "LOOK_EVERY", 0.01)
    right = device("GPU-a", empty=False, pods=["models/job-0"])
    stage.agent.tell(right)
    before = await heard(stage, lambda told: told.gpus)
    for one in NONSENSE:
        stage.agent.answer = {"node": "n1", "version": 9, "known": True, "devices": [right], "claimed": []} | one
        stage.agent.changed.set()
        waiting = asyncio.create_task(stage.states.until_empty([Left("n1", "models/job-0", ("gpu-0",))]))
        await asyncio.sleep(0.1)
        assert not waiting.done(), one
        assert stage.states.of("n1") == before, one
        waiting.cancel()
    stage.agent.answer = {"version": 10}
    stage.agent.tell(device("GPU-a", pods=[]))
    await heard(stage, lambda told: told.gpus[0].empty)


async def test_an_agent_that_does_not_wait_is_asked_ten_times_a_second(stage: Stage) -> None:
    """And not as often as it answers."""
    stage.agent.tell(device("GPU-a", pods=[]))
    await heard(stage, lambda told: told.gpus)
    stage.agent.answer = {**stage.agent.answer, "version": 1 << 40}
    asked = stage.agent.asked
    stage.agent.hasty = True
    stage.agent.changed.set()
    await asyncio.sleep(1.0)
    assert stage.agent.asked - asked <= 12
