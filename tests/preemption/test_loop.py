"""The allocator's loop on a log in memory: leadership, fencing, causes, timers, restarts, latency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from events.adapters.memory import MemoryEventLog
from events.adapters.store import Chunk, Place
from events.clock import SimulatedClock, SystemClock, settle
from events.envelope import AnyEnvelope
from events.log import LogClosed, LogUnavailable, Position, Query, Record, Start
from events.names import Topic
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.metrics import ReplicaMetrics
from events.types.models import ModelDeclared, Override
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings, Deposed
from tests.support.pool import node

SPEC = {"resources": {"gpus": 1, "cpu": 1, "memory": "1Gi"}, "priority": 100, "scaling": {"maxReplicas": 4}}


def declared(model: str = "a", **fields: object) -> ModelDeclared:
    whole = {"uid": f"{model}-1", "revision": 1, "generation": 1, "spec": SPEC} | fields
    return ModelDeclared(model=model, **whole)  # type: ignore[arg-type]  # tests name real fields


def wish(replicas: int, model: str = "a") -> WishDecided:
    return WishDecided(
        model=model, uid=f"{model}-1", revision=1, replicas=replicas, priority=100, reasons=("edge",),
        snapshot={}, policy={}, memory={},
    )  # fmt: skip


class Bench:
    """A log, an allocator on it, and the hands of everyone else."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.log = MemoryEventLog(clock)
        self.hands = EventWriter("test/hands", clock)
        self.allocator = self.new_allocator()

    def new_allocator(self, leader: str = "first") -> Allocator:
        return Allocator(self.log, self.clock, EventWriter("relume/allocator", self.clock), AllocatorSettings(leader))

    async def say(self, *data: object, epoch: int | None = None) -> tuple[AnyEnvelope, ...]:
        events = tuple(self.hands.envelope(one, epoch=epoch) for one in data)
        await self.log.append(events)
        await settle()
        return events

    async def grants(self) -> list[Record]:
        records = [record async for record in self.log.read(Query(Topic.GRANTS))]
        return [record for record in records if isinstance(record.envelope.data, GrantDecided)]

    async def newest(self, model: str = "a") -> GrantDecided:
        found = [record.envelope.data for record in await self.grants() if record.envelope.data.model == model]
        assert isinstance(found[-1], GrantDecided)
        return found[-1]


@asynccontextmanager
async def running(allocator: Allocator) -> AsyncIterator[asyncio.Task[None]]:
    """The allocator at work until the block ends."""
    task = asyncio.create_task(allocator.run())
    await asyncio.wait_for(allocator.caught_up.wait(), 5)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def bench() -> Bench:
    return Bench(SimulatedClock())


async def test_a_wish_becomes_a_grant_with_cause_and_epoch(bench: Bench) -> None:
    """The grant names its replica, the wish that led to it, and the leadership under which it was written."""
    await bench.say(node(), declared())
    async with running(bench.allocator):
        (said,) = await bench.say(wish(1))
        (record,) = await bench.grants()
    assert record.envelope.cause == said.id
    assert record.envelope.epoch == bench.allocator.epoch
    assert [one.replica for one in record.envelope.data.replicas] == ["a-r1-0"]


async def test_leadership_is_told_before_the_first_grant(bench: Bench) -> None:
    """The epoch is the offset of the record that says who leads."""
    await bench.say(node(), declared(), wish(1))
    async with running(bench.allocator):
        records = [record async for record in bench.log.read(Query(Topic.GRANTS))]
    assert isinstance(records[0].envelope.data, LeadershipTaken)
    assert records[0].position.offset == bench.allocator.epoch == records[1].envelope.epoch


async def test_another_leader_in_the_log_deposes(bench: Bench) -> None:
    """Who reads a newer leadership stops and writes nothing more."""
    await bench.say(node(), declared())
    async with running(bench.allocator) as first:
        await bench.say(LeadershipTaken(pool="other", leader="of another pool"))
        assert not first.done()
        await bench.say(LeadershipTaken(pool="default", leader="second"))
        with pytest.raises(Deposed, match="second has taken the pool default"):
            await asyncio.wait_for(first, 5)
        await bench.say(wish(1))
        assert await bench.grants() == []


async def test_a_second_allocator_stands_by_and_takes_over(bench: Bench) -> None:
    """It follows and writes nothing; once the first is gone it goes on from the same grants, with a newer epoch."""
    await bench.say(node(gpus=3), declared())
    second = bench.new_allocator("second")
    async with running(bench.allocator) as first:
        standing_by = asyncio.create_task(second.run())
        await bench.say(wish(1))
        assert not second.leading.is_set()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.wait_for(second.caught_up.wait(), 5)
        before = await bench.grants()
        assert [record.envelope.epoch for record in before] == [bench.allocator.epoch]
        await bench.say(wish(2))
        granted = (await bench.grants())[-1]
        assert granted.envelope.epoch == second.epoch > bench.allocator.epoch
        assert [one.replica for one in granted.envelope.data.replicas] == ["a-r1-0", "a-r1-1"]
        standing_by.cancel()
        await asyncio.gather(standing_by, return_exceptions=True)


async def test_an_adapter_beside_it_is_told_what_stands_in_the_log(bench: Bench) -> None:
    """Each grant once it is written, with its place."""
    told: list[Record] = []
    bench.allocator.tell(told.extend)
    await bench.say(node(), declared())
    async with running(bench.allocator):
        await bench.say(wish(1))
        assert [(one.position, one.envelope) for one in told] == [
            (one.position, one.envelope) for one in await bench.grants()
        ]
        assert len(told) == 1


async def test_a_late_grant_of_a_deposed_allocator_is_covered(bench: Bench) -> None:
    """It is void and counted; ours is said again, so that who reads the newest values finds it."""
    await bench.say(node(gpus=3), declared())
    async with running(bench.allocator):
        await bench.say(wish(1))
        ours = await bench.newest()
        await bench.say(replace(ours, replicas=()), epoch=bench.allocator.epoch - 1)
        await settle()
        assert await bench.newest() == ours
        assert (await bench.grants())[-1].envelope.epoch == bench.allocator.epoch
        assert bench.allocator.stats.refused_grants == 1


async def test_only_the_cards_of_its_own_node_count(bench: Bench) -> None:
    """A leader whose adapter runs processes here cannot run any on the machine of one that is gone: what was granted
    there is granted here once the adapter says that nothing of it runs."""
    gone, here = node("gone"), node("here")
    await bench.say(gone, declared())
    async with running(bench.allocator):
        await bench.say(wish(1))
        assert (await bench.newest()).replicas[0].placement.node == "gone"
    settings = AllocatorSettings("second", node="here")
    second = Allocator(bench.log, bench.clock, EventWriter("relume/second", bench.clock), settings)
    async with running(second):
        await bench.say(here, ReplicasObserved(model="a", uid="a-1", replicas=()))
        assert [one.placement.node for one in (await bench.newest()).replicas] == ["here"]


async def test_states_of_a_replaced_adapter_are_refused(bench: Bench) -> None:
    """It says that nothing of a model runs any more; the one that replaced it knows better."""
    gone, here = node("gone"), node("here")
    await bench.say(gone, declared())
    async with running(bench.allocator):
        await bench.say(wish(1))
    settings = AllocatorSettings("second", node="here")
    second = Allocator(bench.log, bench.clock, EventWriter("relume/second", bench.clock), settings)
    nothing = ReplicasObserved(model="a", uid="a-1", replicas=())
    runs = replace(nothing, replicas=(ReplicaStatus(replica="a-r1-0", uid="x", revision=1, state=ReplicaState.READY),))
    async with running(second):
        await bench.say(here)
        await bench.say(runs, epoch=second.epoch)
        await bench.say(nothing, epoch=second.epoch - 1)
        assert second.stats.refused_states == 1
        assert [one.placement.node for one in (await bench.newest()).replicas] != ["here"]
        await bench.say(nothing, epoch=second.epoch)
        assert [one.placement.node for one in (await bench.newest()).replicas] == ["here"]


async def test_wishes_of_a_deposed_autoscaler_are_refused(bench: Bench) -> None:
    """After ownership was taken, a wish with an older epoch counts for nothing; the newest owner's does."""
    await bench.say(node(), declared())
    async with running(bench.allocator):
        await bench.say(OwnershipTaken(partition=0, owner="one"))
        await bench.say(OwnershipTaken(partition=0, owner="two"))
        newest = [r.position.offset async for r in bench.log.read(Query(Topic.DECISIONS))][-1]
        await bench.say(wish(3), epoch=newest - 1)
        await bench.say(wish(3))
        assert await bench.grants() == []
        assert bench.allocator.stats.refused_wishes == 2
        await bench.say(wish(1), epoch=newest)
        assert (await bench.newest()).wished == 1


async def test_grants_of_a_deposed_allocator_are_not_taken_over(bench: Bench) -> None:
    """A grant that was written after this leader had read the log names nothing that it would go on with."""
    await bench.say(node(gpus=3), declared())
    async with running(bench.allocator):
        await bench.say(wish(1))
        granted = await bench.newest()
        late = replace(granted.replicas[0], replica="a-r1-7")
        await bench.say(replace(granted, replicas=(late,)), epoch=bench.allocator.epoch - 1)
        await bench.say(wish(2))
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0", "a-r1-1"]


class Unreadable(MemoryEventLog):
    """A log whose next `failures` subscriptions fail."""

    failures = 0

    async def newest(self, place: Place, offset: int, limit: int) -> Chunk:
        if self.failures:
            self.failures -= 1
            raise LogUnavailable("the disk fails")
        return await super().newest(place, offset, limit)


async def test_a_log_that_cannot_be_read_is_read_anew(bench: Bench) -> None:
    """The allocator outlives it, and grants once it has read what stands."""
    bench.log = log = Unreadable(bench.clock)
    log.failures = 2
    bench.allocator = bench.new_allocator()
    await bench.say(node(), declared(), wish(1))
    work = asyncio.create_task(bench.allocator.run())
    await settle()
    await bench.clock.advance(3.0)
    assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_a_wish_from_before_a_change_of_owner_still_counts(bench: Bench) -> None:
    """A new owner takes over what the old one wished: the state stands until it is replaced."""
    await bench.say(node(), declared())
    await bench.say(OwnershipTaken(partition=0, owner="one"))
    await bench.say(wish(2), epoch=0)
    await bench.say(OwnershipTaken(partition=0, owner="two"))
    async with running(bench.allocator):
        await settle()
        assert (await bench.newest()).wished == 2


async def test_a_restart_changes_no_grant(bench: Bench) -> None:
    """A new allocator reads the grants of the last one and keeps them."""
    await bench.say(node(gpus=3), declared(), wish(2))
    async with running(bench.allocator):
        await bench.say(declared("b"), wish(1, "b"))
    before = await bench.grants()
    async with running(bench.new_allocator("second")):
        await settle()
        assert await bench.grants() == before
        await bench.say(wish(0, "b"))
        assert [one.drain for one in (await bench.newest("b")).replicas] == [True]


async def test_an_override_ends_without_any_event(bench: Bench) -> None:
    """The clock alone brings the wish back when a person's number runs out."""
    await bench.say(node(), declared(override=Override(replicas=2, until=bench.clock.now() + 30)), wish(1))
    async with running(bench.allocator):
        await settle()
        assert (await bench.newest()).wished == 2
        await bench.clock.advance(29)
        assert (await bench.newest()).wished == 2
        await bench.clock.advance(2)
        assert (await bench.newest()).wished == 1


async def test_what_an_engine_says_decides_who_drains(bench: Bench) -> None:
    """The replica whose engine runs the fewest requests is the one to go."""
    await bench.say(node(), declared(), wish(2))
    async with running(bench.allocator):
        granted = (await bench.newest()).replicas
        seen = tuple(
            ReplicaStatus(
                replica=one.replica, uid="a-1", revision=1, state=ReplicaState.READY, node="n1",
                gpus=one.placement.gpus, resources=one.resources, created_at=bench.clock.now(),
            )
            for one in granted
        )  # fmt: skip
        await bench.say(ReplicasObserved(model="a", uid="a-1", replicas=seen))
        for index, count in enumerate((0.0, 5.0)):
            await bench.say(ReplicaMetrics(model="a", replica=f"a-r1-{index}", revision=1, running=count))
        await bench.say(wish(1))
        assert [one.replica for one in (await bench.newest()).replicas if one.drain] == ["a-r1-0"]


async def test_an_unreadable_declaration_is_counted_and_stops_nothing(bench: Bench) -> None:
    """A spec of another release leaves its model aside; the others go on."""
    await bench.say(node(), declared("x", spec={"resources": {"gpus": "many"}}), declared(), wish(1), wish(1, "x"))
    async with running(bench.allocator):
        await settle()
        assert bench.allocator.stats.unreadable == 1
        assert len(await bench.grants()) == 1


async def test_a_closed_log_ends_the_loop(bench: Bench) -> None:
    """The allocator does not wait for ever on a log that is gone."""
    async with running(bench.allocator) as task:
        await bench.log.close()
        with pytest.raises(LogClosed):
            await asyncio.wait_for(task, 5)


class FullDisk(MemoryEventLog):
    """A log that cannot be written for a while."""

    broken = False

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.broken and isinstance(events[0].data, GrantDecided):
            raise LogUnavailable("disk full")
        return await super().append(events)


async def test_while_the_log_is_full_nothing_is_lost(bench: Bench) -> None:
    """A grant that cannot be recorded is tried again, and is recorded once when the log can be written again."""
    bench.log = log = FullDisk(bench.clock)
    bench.allocator = bench.new_allocator()
    await bench.say(node(), declared())
    async with running(bench.allocator):
        log.broken = True
        await bench.say(wish(1))
        await bench.clock.advance(1)
        assert await bench.grants() == []
        await bench.say(wish(2))
        log.broken = False
        await bench.clock.advance(10)
        assert [record.envelope.data.wished for record in await bench.grants()] == [1, 2]


async def test_a_wish_is_answered_at_once_among_many_models() -> None:
    """With 100 models, a wish is granted in the log without waiting on any timer: half of them within 100 ms."""
    clock = SystemClock()
    bench = Bench(SimulatedClock())
    bench.clock = clock  # type: ignore[assignment]  # real time: this is about time
    bench.log, bench.hands = MemoryEventLog(clock), EventWriter("test/hands", clock)
    bench.allocator = bench.new_allocator()
    names = [f"m{index}" for index in range(100)]
    await bench.log.append([bench.hands.envelope(one) for one in (node(gpus=200, cpu=500), *map(declared, names))])
    async with running(bench.allocator):
        subscription = bench.log.subscribe([Topic.GRANTS], Start("end"))
        batches = aiter(subscription)
        took, clock = [], SystemClock()
        for name in names:
            begun = clock.now()
            await bench.log.append([bench.hands.envelope(wish(1, name))])
            batch = await asyncio.wait_for(anext(batches), 5)
            while not batch.records:
                batch = await asyncio.wait_for(anext(batches), 5)
            took.append(clock.now() - begun)
        await subscription.close()
    assert sorted(took)[50] < 0.1, sorted(took)
