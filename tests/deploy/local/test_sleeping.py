"""Replicas that sleep: real processes over the memory log, with simulated engines, and one that is parked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.demo.model import cached_path
from deploy.local.sleeping import Berths
from events.names import Topic
from events.types.phases import ReplicaDrained, ReplicaPhaseChanged
from events.types.replicas import CardsObserved, Phase, ReplicasObserved, ReplicaState, ReplicaStatus
from tests.support.local_cluster import FAST, Stage, alive, engine, states

S = ReplicaState
MEMORY = 1 << 30


def simulated(level: int = 1, keep_alive: str = "1h", **options: object) -> dict[str, object]:
    """A model on the simulated engine whose replicas sleep."""
    return {
        "engine": {"type": "simulated", "options": options}, "slots": 2,
        "coldStart": {"sleep": {"level": level, "keepAlive": keep_alive}},
    }  # fmt: skip


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A cluster with a gibibyte for sleepers."""
    made = Stage(tmp_path / "data", replace(FAST, sleep_memory=MEMORY))
    await made.cluster.start()
    yield made
    await made.close()


async def put_to_sleep(stage: Stage, model: str = "echo") -> ReplicasObserved:
    """Its replica is ready, is not wanted any more, is drained, and sleeps."""
    await stage.grant(0, model=model)
    await stage.ready(model=model)
    await stage.grant(model=model)
    await stage.until(lambda state: states(state) == [S.DRAINING], model)
    await stage.say(ReplicaDrained(model=model, replica=f"{model}-r1-0"))
    return await stage.until(lambda state: states(state) != [S.DRAINING], model)


async def test_the_memory_for_sleepers_is_nobody_elses(stage: Stage) -> None:
    """What is set aside is not told as the node's memory."""
    plain = await _told(Stage(stage.folder.logs.parent.parent / "other", FAST))
    (told,) = [one for one in await stage.history(Topic.CARDS) if isinstance(one, CardsObserved)]
    assert told.memory_bytes == plain - MEMORY


async def _told(plain: Stage) -> int:
    await plain.cluster.start()
    (told,) = [one for one in await plain.history(Topic.CARDS) if isinstance(one, CardsObserved)]
    await plain.close()
    return told.memory_bytes


@pytest.mark.parametrize("level", [1, 2])
async def test_it_sleeps_and_wakes(stage: Stage, level: int) -> None:
    """Drained it sleeps, at its level, without an address; granted again the same process is ready, by waking."""
    await stage.declare(simulated(level))
    (asleep,) = (await put_to_sleep(stage)).replicas
    assert (asleep.state, asleep.sleep_level, asleep.address, asleep.ready_at) == (S.SLEEPING, level, "", None)
    assert 0 < asleep.resources.memory_bytes < MEMORY
    assert alive(asleep.pid or 0)
    await stage.grant(0)
    (woken,) = (await stage.ready()).replicas
    assert (woken.pid, woken.sleep_level) == (asleep.pid, 0)
    assert [span.phase for span in woken.phases] == [Phase.WAKE, Phase.WARMUP]
    assert woken.weights is not None
    assert woken.weights.tier == "sleep"
    stats = stage.cluster.stats()
    assert (stats.wakes, stats.failed_wakes, stats.sleeping, stats.sleeping_bytes) == (1, 0, 0, 0)


async def test_who_wakes_as_another_is_killed_and_started_cold(stage: Stage) -> None:
    """Its first token after the wake is another: it never serves; a cold start follows, without back-off."""
    await stage.declare(simulated(2, wakesWrong=True))
    (asleep,) = (await put_to_sleep(stage)).replicas
    await stage.grant(0)
    state = await stage.until(lambda now: states(now) == [S.READY] and now.replicas[0].pid != asleep.pid)
    assert [span.phase for span in state.replicas[0].phases] == [Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
    assert (state.failures, stage.cluster.stats().failed_wakes) == (0, 1)
    assert not alive(asleep.pid or 0)
    told = [one for one in await stage.history(Topic.PHASES) if isinstance(one, ReplicaPhaseChanged)]
    assert any("first token is another" in one.message for one in told)


async def test_it_sleeps_as_long_as_it_is_told_to(stage: Stage) -> None:
    """After its keep-alive it ends."""
    await stage.declare(simulated(keep_alive="200ms"))
    (asleep,) = (await put_to_sleep(stage)).replicas
    await stage.gone()
    assert not alive(asleep.pid or 0)


async def test_it_sleeps_as_long_as_it_is_worth_it(stage: Stage) -> None:
    """While its sleep is worth it by the autoscaler, its keep-alive does not count; once it is not, it ends."""
    await stage.declare(simulated(keep_alive="300ms"))
    await stage.grant(0)
    await stage.ready()
    await stage.grant(asleep=1)
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(ReplicaDrained(model="echo", replica="echo-r1-0"))
    (asleep,) = (await stage.until(lambda state: states(state) == [S.SLEEPING])).replicas
    await stage.declare(simulated(keep_alive="200ms"), generation=2)
    await stage.declare(simulated(keep_alive="100ms"), generation=3)
    await asyncio.sleep(0.5)  # longer than it is declared: there is no event to wait for
    assert alive(asleep.pid or 0)
    assert states(await stage.observed()) == [S.SLEEPING]
    await stage.grant(asleep=0)
    await stage.gone()
    assert not alive(asleep.pid or 0)


async def test_one_that_is_not_worth_its_sleep_ends_when_it_is_drained(stage: Stage) -> None:
    """It does not lie down first."""
    await stage.declare(simulated())
    await stage.grant(0)
    await stage.ready()
    await stage.grant(asleep=0)
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(ReplicaDrained(model="echo", replica="echo-r1-0"))
    await stage.gone()
    told = [one for one in await stage.history(Topic.PHASES) if isinstance(one, ReplicaPhaseChanged)]
    assert S.SLEEPING not in {one.state for one in told}


async def test_a_sleep_that_is_undeclared_ends(stage: Stage) -> None:
    """The same revision without coldStart.sleep: who sleeps ends."""
    spec = simulated()
    await stage.declare(spec)
    await put_to_sleep(stage)
    await stage.declare({part: spec[part] for part in ("engine", "slots")}, generation=2)
    await stage.gone()


async def test_one_that_ends_in_its_sleep_has_not_failed(stage: Stage) -> None:
    """Somebody kills the process: it is gone, no failure is counted, and the next grant starts it cold."""
    await stage.declare(simulated())
    (asleep,) = (await put_to_sleep(stage)).replicas
    os.kill(asleep.pid or 0, signal.SIGKILL)
    state = await stage.gone()
    assert state.failures == 0
    await stage.grant(0)
    await stage.ready()


async def test_without_memory_for_sleepers_it_ends(tmp_path: Path) -> None:
    """Nothing is set aside, the default: drained is gone."""
    stage = Stage(tmp_path / "data")
    await stage.cluster.start()
    await stage.declare(simulated())
    await put_to_sleep(stage)
    await stage.gone()
    await stage.close()


async def test_who_needs_more_than_there_is_ends(tmp_path: Path) -> None:
    """A process that holds more than all that is set aside does not sleep."""
    stage = Stage(tmp_path / "data", replace(FAST, sleep_memory=1 << 20))
    await stage.cluster.start()
    await stage.declare(simulated())
    await put_to_sleep(stage)
    await stage.gone()
    told = [one for one in await stage.history(Topic.PHASES) if isinstance(one, ReplicaPhaseChanged)]
    assert any("are set aside for all that sleep" in one.message for one in told)
    await stage.close()


async def test_a_command_is_parked(stage: Stage) -> None:
    """A server on the CPU is asked nothing while it sleeps, and is ready within its one token."""
    spec = engine(sleep="parked") | {"coldStart": {"sleep": {"level": 1}}}
    await stage.declare(spec)
    (asleep,) = (await put_to_sleep(stage)).replicas
    assert asleep.state is S.SLEEPING
    await stage.grant(0)
    (woken,) = (await stage.ready()).replicas
    assert woken.pid == asleep.pid


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.needs("model")
async def test_llamacpp_is_parked_with_its_weights(stage: Stage) -> None:
    """A real model: awake again in the same process, with the same first token, and quicker than it started."""
    await stage.declare(
        {
            "engine": {"type": "llamacpp", "options": {"contextPerSlot": 256}}, "slots": 1,
            "weights": {"uri": str(cached_path())}, "coldStart": {"sleep": {"level": 1}},
        }
    )  # fmt: skip
    await stage.grant(0)
    cold = (await stage.ready()).replicas[0]
    (asleep,) = (await put_to_sleep(stage)).replicas
    assert asleep.state is S.SLEEPING
    await stage.grant(0)
    woken = (await stage.ready()).replicas[0]
    assert woken.pid == cold.pid
    assert woken.weights is not None
    assert woken.weights.bytes == cached_path().stat().st_size
    assert _seconds(woken) < _seconds(cold)


def _seconds(replica: ReplicaStatus) -> float:
    assert replica.ready_at is not None
    assert replica.created_at is not None
    return replica.ready_at - replica.created_at


def test_who_has_slept_longest_makes_room() -> None:
    """Berths: three of four bytes in ten; the third pushes the first out, and who enters again keeps its turn."""
    berths, ended = Berths(10), list[str]()
    for name in ("a", "b"):
        assert berths.enter(name, 4, lambda why, name=name: ended.append(name))
    assert berths.enter("a", 5, lambda why: ended.append("a"))
    assert (berths.used, ended) == (9, [])
    assert berths.enter("c", 4, lambda why: ended.append("c"))
    assert (berths.used, ended) == (8, ["a"])
    assert not berths.enter("d", 11, lambda why: ended.append("d"))
    berths.leave("b")
    berths.leave("b")
    assert (berths.used, ended) == (4, ["a"])


def test_berths_are_never_overfull_and_spare_who_comes() -> None:
    """Whatever comes, what is kept fits, and nobody is ended for itself."""
    berths, ended = Berths(10), list[str]()
    for number, size in enumerate((3, 9, 2, 2, 2, 10, 1, 4, 6, 0, 10)):
        name = str(number)
        assert berths.enter(name, size, lambda why, name=name: ended.append(name))
        assert berths.used <= 10
        assert name not in ended
