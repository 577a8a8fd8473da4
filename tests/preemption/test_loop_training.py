"""The allocator's loop with training jobs, on a log in memory: order of records, fencing, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position, Query
from events.names import Topic
from events.types.accounts import TrainingAccounted
from events.types.reclaims import ReclaimChanged
from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberStatus,
    NoticeStatus,
    RunState,
    Stop,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from tests.preemption.test_loop import Bench, declared, running, wish
from tests.support.pool import node

SPEC = {"command": ["train"], "resources": {"gpus": 1, "cpu": 1, "memory": "1Gi"}}


_WRITTEN = (Topic.GRANTS, Topic.RECLAIMS)

Kind = TypeVar("Kind")


def job(name: str = "tune", **fields: object) -> TrainingDeclared:
    whole = {"uid": f"{name}-1", "revision": 1, "generation": 1, "spec": SPEC} | fields
    return TrainingDeclared(job=name, **whole)  # type: ignore[arg-type]  # tests name real fields


class TrainingBench(Bench):
    """Also says what an adapter would say of a job's runs."""

    async def training(self, name: str = "tune") -> TrainingGranted:
        """The job's newest grant."""
        return [one for one in await self.all_of(TrainingGranted) if one.job == name][-1]

    async def reclaims(self) -> list[ReclaimChanged]:
        return await self.all_of(ReclaimChanged)

    async def all_of(self, kind: type[Kind]) -> list[Kind]:
        """All states of one kind, in the log's order."""
        found = [record for topic in _WRITTEN async for record in self.log.read(Query(topic))]
        return [data for record in found if isinstance(data := record.envelope.data, kind)]

    async def written(self) -> list[AnyEnvelope]:
        """What the allocator wrote, in the order in which it did."""
        found = [record.envelope for topic in _WRITTEN async for record in self.log.read(Query(topic))]
        return sorted(found, key=lambda envelope: envelope.sequence or 0)

    async def see(self, **fields: object) -> None:
        """What is seen of the newest run."""
        grant = await self.training()
        members = tuple(
            MemberStatus(member=m.member, node=m.placement.node, gpus=m.placement.gpus, resources=m.resources)
            for m in grant.members
        )
        whole = {
            "state": RunState.RUNNING,
            "members": members,
            "reports": True,
            "started_at": self.clock.now(),
        } | fields
        await self.say(
            TrainingObserved(job=grant.job, uid=grant.uid, revision=grant.revision, run=grant.run, **whole)  # type: ignore[arg-type]  # tests name real fields
        )

    async def save_and_end(self) -> None:
        """The trainer does what the notice says."""
        grant = await self.training()
        assert grant.notice is not None
        now = self.clock.now()
        heard = NoticeStatus(id=grant.notice.id, heard_at=now)
        await self.see(notice=heard)
        saved = CheckpointStatus(step=7, at=now, manifest="m7", verified=True)
        await self.see(notice=replace(heard, saved_step=7), checkpoint=saved, step=7)
        await self.see(
            notice=replace(heard, saved_step=7), checkpoint=saved, step=7, state=RunState.ENDED, ended_at=now,
            empty_at=now, ending=Ending.SAVED,
        )  # fmt: skip


@pytest.fixture
def bench() -> TrainingBench:
    return TrainingBench(SimulatedClock())


async def test_a_job_is_granted_and_yields_to_a_model_and_comes_back(bench: TrainingBench) -> None:
    """All states in the log, each attempt's before the grant that acts on it, under the leader's epoch."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        assert [m.member for m in (await bench.training()).members] == ["tune-0"]
        await bench.see()
        await bench.say(wish(1))
        grant = await bench.training()
        assert grant.notice is not None
        assert [one.state for one in await bench.reclaims()] == ["selected", "notified"]
        await bench.save_and_end()
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
        await settle()
        assert (await bench.training()).members == ()
        written = await bench.written()
    states = [one.state for one in await bench.reclaims()]
    assert states == ["selected", "notified", "saving", "saved", "claimed", "parked"]
    assert [one.state for one in (await bench.reclaims())[-1].history[-3:]] == ["draining", "claimed", "parked"]
    assert {one.epoch for one in written[1:]} == {bench.allocator.epoch}
    ledger = (await bench.reclaims())[-1].ledger
    assert ledger.steps_lost == 0
    assert ledger.lost["since_commit"] == 0.0
    assert bench.allocator.stats.notices_acked == bench.allocator.stats.reclaims_bound == 1
    order = [getattr(one.data, "state", "noticed" if getattr(one.data, "notice", None) else "") for one in written]
    assert order.index("selected") < order.index("noticed") < order.index("notified")


async def test_a_job_that_is_done_by_itself_has_lost_nothing(bench: TrainingBench) -> None:
    """The notice came in its last moment: it says that it is done and ends; its cards go to the model, and nothing of
    its work is counted as lost."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see(step=40)
        await bench.say(wish(1))
        assert (await bench.training()).notice is not None
        now = bench.clock.now()
        await bench.see(step=50, state=RunState.ENDED, ended_at=now, empty_at=now, ending=Ending.FINISHED)
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
        await settle()
    last = (await bench.reclaims())[-1]
    assert (last.state, last.ledger.steps_lost) == ("finished", 0)
    assert "since_commit" not in last.ledger.lost


class NoReclaims(MemoryEventLog):
    """A log in which records of attempts cannot be written for a while."""

    broken = False

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.broken and isinstance(events[0].data, ReclaimChanged):
            raise LogUnavailable("disk full")
        return await super().append(events)


async def test_nothing_is_sent_before_the_attempt_is_on_record(bench: TrainingBench) -> None:
    """While the attempt cannot be recorded, no notice is granted; the clock of the acknowledgement has not begun."""
    bench.log = log = NoReclaims(bench.clock)
    bench.allocator = bench.new_allocator()
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        log.broken = True
        await bench.say(wish(1))
        await bench.clock.advance(30)
        assert (await bench.training()).notice is None
        log.broken = False
        await bench.clock.advance(10)
        grant = await bench.training()
        assert grant.notice is not None
        assert grant.stop is Stop.NOT


async def test_the_next_leader_goes_on_with_the_same_notice(bench: TrainingBench) -> None:
    """It reads the attempt, keeps its deadline, and sends nothing anew; a late word of the old one is covered."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        await bench.say(wish(1))
        before = await bench.training()
        old = bench.allocator.epoch
    second = bench.new_allocator("second")
    async with running(second):
        await settle()
        assert await bench.training() == before
        late = replace((await bench.reclaims())[-1], state="skipped", ended=True)
        await bench.say(late, replace(before, members=()), epoch=old)
        await settle()
        assert (await bench.reclaims())[-1].state == "notified"
        assert await bench.training() == before
        assert second.stats.refused_reclaims == second.stats.refused_grants == 1
        await bench.save_and_end()
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
    assert len({one.id for one in await bench.reclaims()}) == 1


async def test_the_clock_alone_escalates(bench: TrainingBench) -> None:
    """Nobody answers: SIGTERM at the deadline that the record names, SIGKILL after the grace."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        await bench.say(wish(1))
        for seconds, stop in ((9, Stop.NOT), (2, Stop.TERMINATE), (27, Stop.TERMINATE), (3, Stop.KILL)):
            await bench.clock.advance(seconds)
            assert (await bench.training()).stop is stop
        assert bench.allocator.stats.escalations_terminate == bench.allocator.stats.escalations_kill == 1


async def test_an_unreadable_job_is_left_as_it_is(bench: TrainingBench) -> None:
    """Another release's declaration stops nothing: what runs goes on and is asked for nothing."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        granted = await bench.training()
    await bench.say(job(spec=SPEC | {"unheardOf": 1}, generation=2))
    async with running(bench.new_allocator("second")) as task:
        await bench.say(wish(1))
        await bench.clock.advance(60)
        assert await bench.training() == granted
        assert await bench.reclaims() == []
        assert not task.done()


async def test_a_pool_without_training_writes_nothing_of_it(bench: TrainingBench) -> None:
    """No lender is made for models alone."""
    await bench.say(node(gpus=1), declared(), wish(3))
    async with running(bench.allocator):
        await settle()
        assert bench.allocator.pool.has_lender is False
        assert await bench.reclaims() == []


async def test_what_jobs_did_with_their_cards_outlives_the_leader(bench: TrainingBench) -> None:
    """Each stage of a run is on record; the next leader goes on from there, and says its own again when a deposed one
    writes over it."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see(resumed_step=0, step=0, step_at=bench.clock.now())
        began = bench.clock.now()
        await bench.clock.advance(10)
        old = bench.allocator.epoch
    second = bench.new_allocator("second")
    async with running(second):
        await settle()
        now = bench.clock.now()
        saved = CheckpointStatus(step=7, at=now, manifest="m7", verified=True)
        await bench.see(
            started_at=began, resumed_step=0, step=7, checkpoint=saved, state=RunState.ENDED, ended_at=now,
            empty_at=now, ending=Ending.SAVED,
        )  # fmt: skip
        await settle()
        first, *_, last = await bench.all_of(TrainingAccounted)
        assert first.run == last.run == 1
        assert (first.open is not None, last.open is None, last.parts) == (True, True, {"kept": 10_000_000})
        await bench.say(first, epoch=old)
        await settle()
        assert (await bench.all_of(TrainingAccounted))[-1].parts["kept"] == 10_000_000
    accounts = [one for one in await bench.written() if isinstance(one.data, TrainingAccounted)]
    assert {one.key for one in accounts} == {"training/tune"}
