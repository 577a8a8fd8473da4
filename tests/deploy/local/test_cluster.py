"""The local cluster with real processes: starts, drains, stops, and what it says of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.cluster import LocalCluster
from events.codec import encode_structured
from events.log import Query
from events.names import Topic
from events.types.metrics import ReplicaMetrics
from events.types.phases import ReplicaDrained, ReplicaPhaseChanged
from events.types.replicas import CardsObserved, Phase, ReplicasObserved, ReplicaState
from events.types.shared import Resources
from events.units import Instant, Seconds
from events.writer import EventWriter
from tests.support.local_cluster import FAST, PATIENCE, Stage, alive, engine, states, until_dead

S = ReplicaState


def drained(index: int = 0) -> ReplicaDrained:
    """The slot authority has no lease left on it."""
    return ReplicaDrained(model="echo", replica=f"echo-r1-{index}")


def seen_states(history: Iterable[object]) -> list[list[ReplicaState]]:
    """The states of the replicas in each record."""
    return [states(one) for one in history if isinstance(one, ReplicasObserved)]


async def test_granted_replica_becomes_ready_and_each_phase_is_told(stage: Stage) -> None:
    """A grant starts a process; spawn, load and warm-up are told with begin and end, and then its address."""
    await stage.declare(engine("--load", 0.1))
    await stage.grant(0)
    replica = (await stage.ready()).replicas[0]
    assert [span.phase for span in replica.phases] == [Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
    assert all(span.ended_at is not None and span.ended_at >= span.started_at for span in replica.phases)
    assert (replica.replica, replica.slots, replica.node) == ("echo-r1-0", 4, "local")
    assert replica.address.startswith("127.0.0.1:")
    assert replica.created_at is not None
    assert replica.ready_at is not None
    assert replica.ready_at >= replica.created_at + 0.1
    told = [one for one in await stage.history(Topic.PHASES) if isinstance(one, ReplicaPhaseChanged)]
    assert [(one.state, one.phase) for one in told] == [
        (S.STARTING, Phase.SPAWN), (S.STARTING, Phase.LOAD), (S.STARTING, Phase.WARMUP), (S.READY, None),
    ]  # fmt: skip


async def test_the_process_log_tells_of_each_replica(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """One line when it comes, serves (and after how long), drains and stops; phases are told by events only."""
    caplog.set_level("INFO", "deploy.local.reconciler")
    await stage.declare(engine())
    await stage.grant(0)
    await stage.ready()
    await stage.grant(0, drain=(0,))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(drained())
    await stage.gone()
    told = [record.message for record in caplog.records if record.name == "deploy.local.reconciler"]
    words = [line.removeprefix("echo-r1-0 is ").split(" after ")[0] for line in told]
    assert words == ["starting", "ready", "draining", "stopping"]


async def test_drains_before_it_stops(stage: Stage) -> None:
    """A replica told to drain stays until its last lease is given back, and is free only when its process is gone."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    await stage.grant(0, drain=(0,))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(drained())
    await stage.gone()
    await until_dead([pid], 0.1)
    seen = seen_states(await stage.history())
    assert seen.index([S.DRAINING]) < seen.index([S.STOPPING]) < len(seen) - 1


async def test_drain_is_taken_back(stage: Stage) -> None:
    """A draining replica that is granted again is ready again, as the same process; a late `drained` does no harm."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    await stage.grant(0, drain=(0,))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.grant(0)
    assert (await stage.ready()).replicas[0].pid == pid
    await stage.say(drained())
    await stage.grant(0, 1)
    observed = await stage.ready(2)
    assert observed.replicas[0].pid == pid


async def test_drain_bound(tmp_path: Path) -> None:
    """A replica that is never said to be drained is stopped at the bound."""
    stage = Stage(tmp_path / "data", replace(FAST, drain_bound=Seconds(0.5)))
    await stage.cluster.start()
    try:
        await stage.declare(engine())
        await stage.grant(0)
        await stage.ready()
        await stage.grant()
        began = stage.clock.now()
        await stage.gone()
        assert stage.clock.now() - began >= 0.5
    finally:
        await stage.close()


async def test_starting_replica_is_stopped_at_once(stage: Stage) -> None:
    """A start that is no longer wanted ends without a drain, and is no failure."""
    await stage.declare(engine("--load", 600))
    await stage.grant(0)
    observed = await stage.until(lambda state: any(one.phase is Phase.LOAD for one in state.replicas))
    pid = observed.replicas[0].pid
    assert pid is not None
    await stage.grant()
    observed = await stage.gone()
    assert (observed.failures, observed.reason) == (0, "")
    assert not alive(pid)


async def test_start_that_waits_for_a_place(tmp_path: Path) -> None:
    """A start that waits for its turn says so, and when it is no longer wanted it goes without ever having run."""
    stage = Stage(tmp_path / "data", replace(FAST, start_places=1, start_place_bound=Seconds(60.0)))
    await stage.cluster.start()
    try:
        await stage.declare(engine("--load", 600), model="slow")
        await stage.grant(0, model="slow")
        await stage.until(lambda state: any(one.phase is Phase.LOAD for one in state.replicas), "slow")
        await stage.declare(engine())
        await stage.grant(0)
        observed = await stage.until(lambda state: any(one.phase is Phase.PLACE for one in state.replicas))
        assert observed.replicas[0].pid is None
        await stage.grant()
        await stage.gone()
        await stage.grant(0)
        await stage.grant(model="slow")
        await stage.ready()
    finally:
        await stage.close()


async def test_void_grant_starts_nothing(stage: Stage) -> None:
    """A grant for another uid, or by a leader that leads no more, changes nothing."""
    await stage.declare(engine())
    epoch = await stage.lead()
    await stage.grant(0, uid="other", epoch=epoch)
    await stage.grant(0, epoch=epoch)
    await stage.ready()
    newer = await stage.lead()
    assert newer > epoch
    await stage.grant(epoch=epoch)
    await stage.grant(0, 1, epoch=newer)
    observed = await stage.ready(2)
    assert observed.grant_epoch == newer
    assert stage.cluster.stats().refused_grants == 1
    assert stage.cluster.stats().starts == 2


async def test_a_grant_that_was_told_directly_gives_way_to_no_older_one(stage: Stage) -> None:
    """Who wrote it tells it before the log does. What the log tells after that is known or older; newer ones count."""
    await stage.declare(engine())
    await stage.grant()
    older = [record async for record in stage.log.read(Query(topic=Topic.GRANTS))][-1]
    await stage.grant(0)
    newer = [record async for record in stage.log.read(Query(topic=Topic.GRANTS))][-1]
    stage.cluster.recorded([replace(newer, position=replace(newer.position, offset=newer.position.offset + 1))])
    await stage.ready()
    await stage.say(older.envelope.data)  # at the offset that was told: as if it had been read late
    await stage.ready()
    assert stage.cluster.stats().starts == 1
    await stage.say(older.envelope.data)
    await stage.gone()


async def test_states_of_a_replaced_adapter_are_covered(tmp_path: Path) -> None:
    """One that was replaced and does not know it tells of our model: ours is said again, under our epoch. What a later
    one tells, we leave."""
    stage = Stage(tmp_path / "data")
    epoch = await stage.lead()
    stage.cluster_writer.epoch = epoch
    await stage.cluster.start()
    try:
        await stage.declare(engine())
        await stage.grant(0, epoch=epoch)
        ours = await stage.ready()
        late = replace(ours, replicas=())
        await stage.say(late, epoch=epoch - 1)
        await stage.until(lambda state: state == ours)
        await stage.say(late, epoch=epoch + 1)
        await stage.say(replace(late, model="other"))
        await stage.cluster.stop(Seconds(0.0))
        records = [record.envelope async for record in stage.log.read(Query(topic=Topic.REPLICAS))]
        newer = [one.epoch for one in records].index(epoch + 1)
        assert [one.epoch for one in records[newer - 2 : newer]] == [epoch - 1, epoch]
        assert ours not in [one.data for one in records[newer:]]
    finally:
        await stage.close()


async def test_declared_anew(stage: Stage) -> None:
    """A name that is declared anew drains what the old declaration ran, and then starts its own."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    await stage.declare(engine(), uid="u2")
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.grant(0, uid="u2")
    await stage.say(drained())
    observed = await stage.until(lambda state: states(state) == [S.READY] and state.replicas[0].uid == "u2")
    assert observed.replicas[0].pid != pid


async def test_environment_limits_and_cards(tmp_path: Path) -> None:
    """A replica gets its cards, its cores and its niceness, and no secret of ours."""
    stage = Stage(tmp_path / "data", replace(FAST, gpus=2))
    os.environ["RELUME_TEST_SECRET"] = "s"
    await stage.cluster.start()
    try:
        await stage.declare(engine("--tell-env", tmp_path / "env"))
        await stage.grant(0, gpus=("virtual-1",), resources=Resources(gpus=1, cpu=1.0))
        replica = (await stage.ready()).replicas[0]
        env = json.loads((tmp_path / "env").read_text())
        assert (env["RELUME_GPUS"], env["CUDA_VISIBLE_DEVICES"]) == ("virtual-1", "")
        assert "RELUME_TEST_SECRET" not in env
        assert replica.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, replica.pid) == os.getpriority(os.PRIO_PROCESS, 0) + FAST.niceness
        assert len(os.sched_getaffinity(replica.pid)) == 1
        assert stage.cluster.cards is not None
        assert [card.id for card in stage.cluster.cards.cards] == ["virtual-0", "virtual-1"]
    finally:
        del os.environ["RELUME_TEST_SECRET"]
        await stage.close()


async def test_metrics_are_read(stage: Stage) -> None:
    """A ready replica's own metrics are told again and again."""
    await stage.declare(engine(metricsPath="/metrics"))
    await stage.grant(0)
    await stage.ready()
    async with asyncio.timeout(PATIENCE):
        while len(told := await stage.history(Topic.METRICS)) < 2:
            await stage.clock.sleep_until(Instant(stage.clock.now() + 0.02))
    expected = ReplicaMetrics(model="echo", replica="echo-r1-0", revision=1, running=2, waiting=1)
    assert told[:2] == [expected, expected]


async def test_starts_again_from_the_log(stage: Stage) -> None:
    """A cluster that starts on a log publishes what is (nothing), and then starts what is granted there."""
    await stage.declare(engine())
    await stage.declare(engine(), model="idle")
    await stage.grant(0, epoch=await stage.lead())
    await stage.ready()
    await stage.cluster.stop(Seconds(0.0))
    assert states(await stage.observed()) == []
    await stage.lead()
    position = [record.position async for record in stage.log.read(Query(topic=Topic.REPLICAS))][-1].offset
    again = LocalCluster(stage.log, EventWriter("relume/again", stage.clock), stage.clock, stage.folder, FAST)
    await again.start()
    try:
        await stage.ready()
        records = [one async for one in stage.log.read(Query(topic=Topic.REPLICAS, from_offset=position + 1))]
        assert {one.envelope.data.model for one in records} == {"echo", "idle"}
    finally:
        await again.stop(Seconds(0.0))


async def test_stop_drains(stage: Stage) -> None:
    """At the end replicas drain; each goes when its last lease is given back, the rest at the bound."""
    await stage.declare(engine())
    await stage.grant(0, 1)
    pids = [replica.pid for replica in (await stage.ready(2)).replicas]
    began = stage.clock.now()
    await stage.say(drained(1))  # not draining: nothing to say
    stop = asyncio.create_task(stage.cluster.stop(Seconds(0.7)))
    await stage.until(lambda state: states(state) == [S.DRAINING] * 2)
    await stage.say(drained(1))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stop
    assert stage.clock.now() - began >= 0.7
    assert not any(alive(pid) for pid in pids if pid)
    assert states(await stage.observed()) == []


async def test_everything_it_says_can_be_written(stage: Stage) -> None:
    """What it publishes, also of failures, is an event that the codec writes."""
    await stage.declare(engine("--exit", 1))
    await stage.grant(0)
    await stage.until(lambda state: state.failures == 1)
    for topic in (Topic.REPLICAS, Topic.PHASES, Topic.CARDS):
        envelopes = [record.envelope async for record in stage.log.read(Query(topic=topic))]
        assert envelopes
        assert all(encode_structured(envelope) for envelope in envelopes)


async def test_says_what_the_machine_has(stage: Stage) -> None:
    """Cores, memory and cards are published once at the start."""
    cards = await stage.history(Topic.CARDS)
    assert cards == [stage.cluster.cards]
    assert isinstance(cards[0], CardsObserved)
    assert cards[0].cpu > 0
    assert cards[0].memory_bytes > 0


async def test_broken_part_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a part of the cluster fails by a bug, who waits for that hears it."""

    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(stage.cluster._view, "fold", bug)
    await stage.declare(engine())
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await stage.cluster.wait_broken()
