"""Single stories in a simulated world: each was, or could be, a bug of the whole that no part shows alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from autoscaler.core.model import Decision, Memory
from events.types.requests import ActivationRequested
from events.units import Seconds
from tests.support.simulated_cluster import Behaviour
from tests.support.simulated_time import simulate
from tests.support.simulated_world import Setup, Watcher, World, world

ALWAYS = {"wait": 60.0, "leaves": None}


def told(story: Callable[[World], Coroutine[Any, Any, None]], gpus: int = 4) -> None:
    """Run a story in a world without hazards of its own."""

    async def run() -> None:
        async with world(Setup(seed=1, gpus=gpus)) as made:
            made.machine.behaviours["m"] = Behaviour(start=(0.5, 0.5))
            await story(made)
            made.check_alive()

    simulate(run)


async def declare(made: World, keep_alive: str = "1s", **scaling: object) -> None:
    """The model `m`: 2 slots, 0 to 4 replicas."""
    bounds = {"maxReplicas": 4, "keepAlive": keep_alive, "stableWindow": "10s", "panicWindow": "2s", **scaling}
    await made.apply("m", slots=2, resources={"cpu": 1, "memory": "1Gi", "gpus": 0}, scaling=bounds)
    await asyncio.sleep(0.1)


async def served(made: World, seconds: float = 0.3) -> None:
    """One request comes and is served."""
    client = made.ask("m", random.Random(0), seconds=seconds, **ALWAYS)
    await until(lambda: bool(client.how))
    assert client.how == "finished"


async def until(holds: Callable[[], bool], within: float = 60.0) -> None:
    """Wait for something in the world."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - many things may make it so, on simulated time
            await asyncio.sleep(0.1)


def test_rare_crashes_of_short_lives_are_no_crash_loop() -> None:
    """A model that goes to zero within seconds and crashes now and then is tried again at once each time: what lived
    well between two crashes counts."""

    async def story(made: World) -> None:
        await declare(made)
        for _ in range(8):
            for _ in range(3):
                await served(made)
                await asyncio.sleep(8.0)
            made.ask("m", random.Random(0), seconds=0.3, **ALWAYS)
            await until(lambda: any(engine.running for engine in made.machine.engines.values()))
            made.machine.crash(next(iter(made.machine.engines)))
            await asyncio.sleep(0.1)
            assert made.ledger.observed["m"].failures == 1, "a crash loop was seen where there is none"
            await asyncio.sleep(20.0)

    told(story)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_activation_is_not_in_vain(*, restarts: bool) -> None:
    """A start of 8 s outlives a keep-alive of 5 s, also when the autoscaler is another one by then: the model is ready
    for 5 s, and then goes."""

    async def story(made: World) -> None:
        made.machine.behaviours["m"] = Behaviour(start=(8.0, 8.0))
        began: list[str] = []
        made.machine.began.append(lambda engine: began.append(str(engine)))
        await declare(made, "5s")
        await made._admin.append([made.writer("admin").envelope(ActivationRequested(model="m"))])
        asked_at = made.clock.now()
        if restarts:
            await asyncio.sleep(4.0)
            await made.restart("autoscaler")
        await until(lambda: any(engine.ready for engine in made.machine.engines.values()))
        ready_at = made.clock.now()
        assert ready_at - asked_at >= 8.0
        await asyncio.sleep(4.5)
        assert made.machine.engines, "it went before its keep-alive"
        await until(lambda: not made.machine.engines)
        assert made.clock.now() - ready_at < 15.0
        assert len(began) == 1, "it was started in vain"

    told(story)


def test_a_keep_alive_does_not_keep_the_only_gpu_from_who_waits() -> None:
    """Two models that are asked in turn and live on for ten minutes: each request is served after the other's stable
    window (10 s) and a start, not after its keep-alive; nothing is started that nobody asked for."""

    async def story(made: World) -> None:
        began: list[str] = []
        made.machine.began.append(lambda engine: began.append(engine.model))
        scaling = {"maxReplicas": 1, "keepAlive": "600s", "stableWindow": "10s", "panicWindow": "2s"}
        for model in ("m", "other"):
            made.machine.behaviours[model] = Behaviour(start=(4.0, 4.0))
            await made.apply(model, slots=2, resources={"cpu": 1, "memory": "1Gi", "gpus": 1}, scaling=scaling)
        await asyncio.sleep(0.1)
        for turn in range(6):
            asked_at, model = made.clock.now(), ("m", "other")[turn % 2]
            client = made.ask(model, random.Random(turn), seconds=0.3, **ALWAYS)
            await until(lambda client=client: bool(client.how))  # type: ignore[misc]  # bound now
            assert client.how == "finished"
            assert made.clock.now() - asked_at < 10.0 + 10.0 + 4.0 + 3.0
            await asyncio.sleep(5.0)
        assert began == ["m", "other"] * 3
        await asyncio.sleep(300.0)
        assert began == ["m", "other"] * 3

    told(story, gpus=1)


def test_crash_loop_is_one() -> None:
    """A model whose replicas start well and all die within seconds is tried less and less often."""

    async def story(made: World) -> None:
        await declare(made, "300s", minReplicas=1)
        began: list[float] = []
        made.machine.began.append(lambda _: began.append(made.clock.now()))
        for _ in range(1200):
            await asyncio.sleep(0.5)
            for name, engine in list(made.machine.engines.items()):
                if engine.ready:
                    made.machine.crash(name)
        assert 8 <= len(began) <= 12, began

    told(story)


@pytest.mark.parametrize("written", [0.0, 1.0], ids=["not written", "written all the same"])
def test_a_wish_whose_writing_is_unsure_is_settled(written: float) -> None:
    """The log does not confirm a wish for zero, and may have it; by then somebody asks again. The model must not stay
    at zero with a wish for one in the autoscaler's mind only."""

    async def story(made: World) -> None:
        await declare(made, "1s")
        await served(made)
        await asyncio.sleep(0.6)
        made.faults.away, made.faults.unsure = True, written
        await asyncio.sleep(2.5)
        view = made.autoscaler._estate.tenures[0].fold.models["m"]
        assert view.unsure
        assert view.wish is not None
        same = Decision(replicas=view.wish.replicas, reasons=view.wish.reasons, memory=Memory())
        now = made.clock.now()
        assert view.record_at(same, now, Seconds(10.0)) == now, "what the log may not have must be told anew"
        made.faults.away = False
        await until(lambda: not made.machine.engines)
        await served(made)
        assert not view.unsure
        assert view.wish.replicas == made.ledger.wishes["m"].replicas

    told(story)


@pytest.mark.parametrize("written", [0.0, 1.0], ids=["not written", "written all the same"])
def test_a_state_whose_writing_is_unsure_is_settled(written: float) -> None:
    """The log does not confirm that a replica starts, and may have it; it is gone before the log is back. What the log
    says last must be that it is gone."""

    async def story(made: World) -> None:
        await declare(made, "300s")
        made.machine.behaviours["m"] = Behaviour(start=(0.5, 0.5), stop=0.01)
        await made.scale("m", 1, 0.3)
        while not made.cluster._reconciler.replicas():  # noqa: ASYNC110 - at the very turn of the loop
            await asyncio.sleep(0)
        made.faults.away, made.faults.unsure = True, written
        await asyncio.sleep(0.2)
        for name in list(made.machine.engines):
            made.cluster._reconciler.find("m", name).stop("a person's will")  # type: ignore[union-attr]  # it is there
        made.cluster._reconciler.close()  # nothing starts again
        await asyncio.sleep(1.0)
        made.faults.away = False
        await asyncio.sleep(10.0)
        assert made.cluster._reconciler.replicas() == []
        assert made.ledger.observed["m"].replicas == ()

    told(story)


def test_constant_load_does_not_flap() -> None:
    """Ten minutes of the same load: the wish rises to it and stays."""

    async def story(made: World) -> None:
        await declare(made, "60s")
        drawn = random.Random(5)
        watcher = Watcher(made)
        watcher.keep_alive["m"] = 60.0
        watching = asyncio.create_task(watcher.watch())
        for second in range(600):
            for _ in range(4):  # four a second of a second each: four run at any time, two replicas are full
                made.ask("m", drawn, seconds=1.0, **ALWAYS)
                await asyncio.sleep(0.25)
            if second == 60:
                made.ledger.wish_changes.clear()
        watching.cancel()
        assert made.ledger.wish_changes.get("m", 0) <= 2
        assert 2 <= made.ledger.wishes["m"].replicas <= 3

    told(story)


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    """Models that are declared, asked for and deleted are forgotten by desk, allocator and reconciler; the autoscaler
    keeps no more of their late events than its bound."""

    async def story(made: World) -> None:
        for index in range(40):
            name = f"n{index}"
            made.machine.behaviours[name] = Behaviour(start=(0.1, 0.1), stop=0.01)
            await made.apply(name, slots=2, resources={"cpu": 1, "memory": "1Gi", "gpus": 0})
            await asyncio.sleep(0.01)
            client = made.ask(name, random.Random(0), seconds=0.1, **ALWAYS)
            await until(lambda client=client: client.how == "finished")  # type: ignore[misc]  # bound in the loop
            await made.delete(name)
        await asyncio.sleep(60.0)
        desk, allocator, cluster = made.desk, made.allocator, made.cluster
        kept = {
            "models": desk._authority._models, "routes": desk._routes, "created": desk._created,
            "meters": desk._authority._meters._awake, "runs": cluster._reconciler._runs, "alarms": cluster._alarms._at,
            "seats": allocator.pool._seats, "causes": allocator._fold.causes, "due": made.autoscaler._agenda._due,
        }  # fmt: skip
        assert {name: len(what) for name, what in kept.items() if what} == {}
        assert set(made.autoscaler._estate.tenures[0].fold.models) == set(
            made.autoscaler._estate.tenures[0].fold._undeclared
        )  # which is bounded

    told(story)
