"""A replica whose object would end its pod for another's: it drains first, or starts anew, and nothing has failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

from deploy.kubernetes.judging import PodReason, Trouble
from deploy.kubernetes.replica import PodReplica
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.local.declared import Declared
from events.clock import SimulatedClock, settle
from events.names import ModelName
from events.types.grants import Placement, ReplicaGrant
from events.types.replicas import ReplicaState, ReplicaStatus
from events.types.shared import Resources
from events.units import Seconds
from runtime.adapters.registry import engine_for
from runtime.core.policy import Timeouts
from runtime.spec import EngineType

POD = PodView(
    name="s-1", namespace="default", uid="u1", node="n", ip="10.0.0.1", phase="Running", running=True, ordinal=1
)
SERVED = ReplicaStatus(replica="m-r1-0", uid="u", revision=1, state=ReplicaState.READY)


class Source:
    """Gives no pod by itself; `moved` says that the object would end it."""

    def __init__(self) -> None:
        self.moved: asyncio.Future[Trouble] = asyncio.get_running_loop().create_future()
        self.drained: list[bool] = []
        self.disposed = 0

    async def obtain(self) -> PodView:
        """There is none yet."""
        await asyncio.Event().wait()
        return POD

    def keep(self, pod: PodView) -> None:
        """It is there already."""

    def port(self, pod: PodView) -> int:
        """Where it serves."""
        del pod
        return 8000

    def drains(self, *, so: bool) -> None:
        """It hears of it."""
        self.drained.append(so)

    async def displaced(self) -> Trouble:
        """When the test says so."""
        return await self.moved

    def ordinal(self) -> int | None:
        """As its pod has it."""
        return POD.ordinal

    async def dispose(self) -> None:
        """At once."""
        self.disposed += 1

    def move(self) -> None:
        """The object would end the pod next."""
        self.moved.set_result(Trouble(PodReason.DISPLACED, "it ends this pod first"))


class Pods:
    """One pod, which nothing happens to."""

    def get(self, namespace: str, name: str) -> PodView | None:
        """It is there."""
        return POD if (namespace, name) == (POD.namespace, POD.name) else None

    def bell(self, namespace: str, name: str) -> asyncio.Event:
        """Never rings."""
        del namespace, name
        return asyncio.Event()

    def unbell(self, namespace: str, name: str, event: asyncio.Event) -> None:
        """Nobody waits."""


@asynccontextmanager
async def living(*, served: bool) -> AsyncIterator[tuple[PodReplica, Source, asyncio.Task[None], list[ReplicaState]]]:
    """A replica that lives, its source, its life, and the states that were told."""
    tools = SimpleNamespace(
        clock=SimulatedClock(), pods=Pods(), settings=KubernetesSettings(), engine_for=engine_for,
        node_ready=lambda _: True,
    )  # fmt: skip
    declared = Declared(
        model=ModelName("m"), uid="u", revision=1, engine=EngineType.SIMULATED, options={}, weights="", slots=1,
        timeouts=Timeouts(Seconds(60.0), Seconds(60.0), Seconds(60.0)),
    )  # fmt: skip
    grant = ReplicaGrant(replica="m-r1-0", revision=1, placement=Placement(node="n"), resources=Resources())
    told: list[ReplicaState] = []

    def changed(replica: PodReplica) -> None:
        if replica.state is not None and (not told or told[-1] is not replica.state):
            told.append(replica.state)

    made = PodReplica(cast("Tools", tools), declared, grant, changed)
    source = Source()
    made.source = source
    if served:
        made.take_over(SERVED, POD)
    life = asyncio.create_task(made.live())
    await settle()
    try:
        yield made, source, life, told
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def test_one_that_serves_drains_first() -> None:
    """It gives the reason, finishes what runs in it, and ends in order; it is not taken back meanwhile."""
    async with living(served=True) as (replica, source, life, told):
        assert replica.status().ordinal == 1
        source.move()
        await settle()
        assert (replica.state, replica.status().reason, source.disposed) == (ReplicaState.DRAINING, "Displaced", 0)
        replica.take_back()
        assert (replica.state, source.drained[-1]) == (ReplicaState.DRAINING, True)
        replica.emptied()
        await asyncio.wait_for(life, 5)
        assert told == [ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPING]
        assert (replica.verdict is not None and replica.verdict.reason, source.disposed) == ("", 1)


async def test_one_that_starts_starts_anew() -> None:
    """It ends in order, without a failed start."""
    async with living(served=False) as (replica, source, life, told):
        assert replica.state is ReplicaState.STARTING
        source.move()
        await asyncio.wait_for(life, 5)
        assert told[-1] is ReplicaState.STOPPING
        assert (replica.verdict is not None and replica.verdict.reason, source.disposed) == ("", 1)


async def test_an_order_goes_before_it() -> None:
    """One that drains for another's sake and is stopped at its bound ends by that."""
    async with living(served=True) as (replica, source, life, _):
        source.move()
        await settle()
        replica.stop("not drained within 5 s")
        await asyncio.wait_for(life, 5)
        assert replica.verdict is not None
        assert replica.verdict.message == "not drained within 5 s"


async def test_who_stays_hears_of_its_drain_and_of_its_end() -> None:
    """A drain and its taking back reach whoever gave the pod."""
    async with living(served=True) as (replica, source, life, _):
        replica.drain()
        replica.take_back()
        assert source.drained == [False, True, False]
        replica.stop("drained")
        await asyncio.wait_for(life, 5)
        assert source.disposed == 1
