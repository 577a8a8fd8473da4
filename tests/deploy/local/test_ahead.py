"""Engines that are spawned while their weights come, and are told where they are."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from coldstart.cache import holding, inventory
from coldstart.core.phases import beside_fetch, one_by_one
from deploy.local.ahead import Word, beside
from events.types.replicas import Phase, ReplicasObserved, ReplicaState, ReplicaStatus
from runtime.engines.awaiting import DESCRIPTORS_MOST, NoWeights, Paths, send, wait
from tests.support.flaky_origin import Origin, served
from tests.support.local_cluster import Stage, alive, states, until_dead
from tests.support.weights_stage import content, weights_stage


def simulated(uri: str, **options: object) -> dict[str, object]:
    """A model on the simulated engine, which awaits its weights."""
    return {"engine": {"type": "simulated", "options": options}, "slots": 4, "weights": {"uri": uri}}


def waits(state: ReplicasObserved) -> bool:
    """Whether its one replica is spawned, and goes on fetching."""
    return [(span.phase, span.ended_at is None) for one in state.replicas for span in one.phases] == [
        (Phase.FETCH, True), (Phase.SPAWN, False),
    ]  # fmt: skip


async def waiting(stage: Stage, origin: Origin) -> ReplicaStatus:
    """Its replica, once the engine waits for its weights, which do not come."""
    origin.open_gate.clear()
    await stage.declare(simulated(origin.url))
    await stage.grant(0)
    replica = (await stage.until(waits)).replicas[0]
    assert (replica.state, replica.phase, replica.address) == (ReplicaState.STARTING, Phase.FETCH, "")
    assert replica.pid is not None
    assert alive(replica.pid)
    return replica


async def test_an_engine_is_spawned_while_its_weights_come(tmp_path: Path) -> None:
    """The spawn lies within the fetch; what is left of it after the last byte is to listen. The start takes the fetch
    and the load, not the spawn."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            pid = (await waiting(stage, origin)).pid
            origin.open_gate.set()
            replica = (await stage.ready()).replicas[0]
            assert replica.pid == pid
            fetch, early, late, load, warmup = replica.phases
            assert [span.phase for span in replica.phases] == [
                Phase.FETCH, Phase.SPAWN, Phase.SPAWN, Phase.LOAD, Phase.WARMUP,
            ]  # fmt: skip
            assert beside_fetch(replica.phases)
            assert early.ended_at is not None
            assert fetch.ended_at is not None
            assert fetch.started_at <= early.started_at < early.ended_at <= fetch.ended_at
            assert late.started_at == fetch.ended_at
            assert load.started_at == late.ended_at
            on_the_way = sum((span.ended_at or 0.0) - span.started_at for span in one_by_one(replica.phases))
            assert on_the_way == pytest.approx((warmup.ended_at or 0.0) - fetch.started_at, abs=1e-6)


async def test_weights_that_are_here_spawn_as_ever(tmp_path: Path) -> None:
    """A second replica waits for nothing: its fetch is over before anything could go on beside it."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(simulated(origin.url))
            await stage.grant(0)
            await stage.ready()
            await stage.grant(0, 1)
            second = (await stage.ready(2)).replicas[1]
            assert [span.phase for span in second.phases] == [Phase.FETCH, Phase.SPAWN, Phase.LOAD, Phase.WARMUP]


async def test_more_adapters_than_one_message_takes(tmp_path: Path) -> None:
    """Their uses are inherited at the spawn: it waits for the bytes, and for nothing that never comes."""
    many = [{"name": f"a{number}", "uri": "/dev/null"} for number in range(DESCRIPTORS_MOST)]
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(simulated(origin.url) | {"weights": {"uri": origin.url, "adapters": many}})
            await stage.grant(0)
            replica = (await stage.ready()).replicas[0]
            assert [span.phase for span in replica.phases] == [Phase.FETCH, Phase.SPAWN, Phase.LOAD, Phase.WARMUP]


async def test_the_engine_holds_its_weights(tmp_path: Path) -> None:
    """It was spawned before there was a use to inherit, and holds it all the same, whatever becomes of relume."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, agent):
            await waiting(stage, origin)
            origin.open_gate.set()
            replica = (await stage.ready()).replicas[0]
            one = inventory.named(agent.layout, origin.url)
            had = stage.cluster._reconciler.replicas()[0]._had
            assert had is not None
            had.end()  # as if relume were dead
            assert holding.used(agent.layout, one.snapshots[0])
            await stage.grant()
            await stage.until(lambda state: states(state) == [ReplicaState.DRAINING])
            assert replica.pid is not None
            os.kill(replica.pid, signal.SIGKILL)
            await stage.gone()
            await until_dead([replica.pid], 5.0)
            assert not holding.used(agent.layout, one.snapshots[0])


async def test_an_engine_that_ends_while_bytes_come_is_told_at_once(tmp_path: Path) -> None:
    """Not after a fetch of hours; and the next start goes on with the fetch that never stopped."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            replica = await waiting(stage, origin)
            assert replica.pid is not None
            os.kill(replica.pid, signal.SIGKILL)
            failed = await stage.until(lambda state: state.failures == 1)
            assert failed.reason == "ExitedWhileStarting"
            origin.open_gate.set()
            await stage.ready()
            assert origin.sent == len(origin.content)


@pytest.mark.parametrize("how", ["taken back", "not to be had"])
async def test_nothing_is_left_of_a_start_that_ends(tmp_path: Path, how: str) -> None:
    """Whoever waits for weights that nobody brings any more is cleared away."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            replica = await waiting(stage, origin)
            if how == "taken back":
                await stage.grant()
                await stage.gone()
            else:
                origin.faults = lambda _: "forbidden"
                origin.open_gate.set()
                await stage.until(lambda state: state.failures == 1)
            assert replica.pid is not None
            await until_dead([replica.pid], 5.0)


async def _ends(why: str) -> NoReturn:
    await asyncio.sleep(0)
    raise ValueError(why)


@pytest.mark.parametrize("begins", [True, False])
async def test_what_goes_wrong_first_is_raised(begins: bool) -> None:
    """The main's error, and the work's while the main goes on; work that never began has no result."""
    begin, forever = asyncio.Event(), asyncio.Event()

    async def work(came: asyncio.Future[int | None]) -> NoReturn:
        came.set_result(7)
        await forever.wait()
        raise AssertionError("it is stopped before")

    async def main() -> None:
        if begins:
            begin.set()
        await asyncio.sleep(0)

    assert await beside(main(), begin, work) == (7 if begins else None)
    begin = asyncio.Event()
    with pytest.raises(ValueError, match="main"):
        await beside(_ends("main"), begin, work)
    begin.set()
    with pytest.raises(ValueError, match="work"):
        await beside(_waits(forever), begin, lambda _: _ends("work"))


async def _waits(forever: asyncio.Event) -> None:
    await forever.wait()


async def test_a_word_of_where_weights_are() -> None:
    """The engine hears paths and gets descriptors of its own; one whose relume ends before hears that."""
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    waiting_ = asyncio.create_task(asyncio.to_thread(wait, theirs.detach()))
    assert await asyncio.to_thread(ours.recv, 64) == b"ready\n"
    paths = Paths("/w/a b.gguf", ("/w/ä",))
    send(ours, paths, (writing,))
    assert await waiting_ == paths
    os.close(writing)
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)  # not at its end: the engine's side is still open
    os.close(reading)
    ours.close()
    word = Word()
    ended = asyncio.create_task(asyncio.to_thread(wait, os.dup(word.descriptor)))
    await word.ready()
    word.close()
    with pytest.raises(NoWeights):
        await ended
