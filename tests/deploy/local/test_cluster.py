"""The local cluster with real processes: starts, drains, stops, and what it says of them."""

from __future__ import annotations

from events.names import Topic
from events.types.phases import ReplicaDrained, ReplicaPhaseChanged
from events.types.replicas import CardsObserved, Phase, ReplicaState
from tests.support.local_cluster import Stage, engine, states, until_dead

S = ReplicaState


async def test_granted_replica_becomes_ready_and_each_phase_is_told(stage: Stage) -> None:
    """A grant starts a process; spawn, load and warm-up are told with begin and end, and then its address."""
    await stage.declare(engine("--load", 0.1, metricsPath="/metrics"))
    await stage.grant(0, epoch=0)
    observed = await stage.ready()
    replica = observed.replicas[0]
    assert [span.phase for span in replica.phases] == [Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
    assert all(span.ended_at is not None and span.ended_at >= span.started_at for span in replica.phases)
    assert replica.replica == "echo-r1-0"
    assert replica.address.startswith("127.0.0.1:")
    assert replica.slots == 4
    assert replica.ready_at is not None
    assert replica.created_at is not None
    assert replica.ready_at > replica.created_at
    told = [one for one in await stage.history(Topic.PHASES) if isinstance(one, ReplicaPhaseChanged)]
    assert [(one.state, one.phase) for one in told] == [
        (S.STARTING, Phase.SPAWN), (S.STARTING, Phase.LOAD), (S.STARTING, Phase.WARMUP), (S.READY, None),
    ]  # fmt: skip


async def test_drains_before_it_stops(stage: Stage) -> None:
    """A replica told to drain stays until its last lease is given back, and is free only when its process is gone."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    await stage.grant(0, drain=(0,))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(ReplicaDrained(model="echo", replica="echo-r1-0"))
    await stage.gone()
    await until_dead([pid], 0.1)
    seen = [states(one) for one in await stage.history() if one.replicas]  # type: ignore[attr-defined]  # all are states
    assert seen.index([S.DRAINING]) < seen.index([S.STOPPING])


async def test_says_what_the_machine_has(stage: Stage) -> None:
    """Cores, memory and cards are published once at the start."""
    cards = await stage.history(Topic.CARDS)
    assert cards == [stage.cluster.cards]
    assert isinstance(cards[0], CardsObserved)
    assert cards[0].cpu > 0
    assert cards[0].memory_bytes > 0
