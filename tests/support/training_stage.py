"""A local cluster for training jobs, with an allocator that the test plays by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deploy.local.cluster import LocalCluster
from deploy.local.process import ReplicaProcess
from deploy.local.settings import LocalSettings
from events.adapters.opened import OpenedLog
from events.log import Query
from events.names import Topic, member_name
from events.types.grants import Placement
from events.types.shared import Resources
from events.types.training import (
    MemberGrant,
    NoticeGiven,
    NoticeMode,
    RunState,
    Stop,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from events.units import Seconds
from events.writer import EventWriter
from tests.support.local_cluster import FAST, PATIENCE, Stage

TRAINER = str(Path(__file__).with_name("fake_trainer.py"))
ROOT = str(Path(__file__).parents[2])
JOB = "tune"
QUICK = replace(FAST, gpus=4, grace=Seconds(1.0))


def trainer(kind: str, *flags: object) -> tuple[str, ...]:
    """The command of a trainer."""
    return (sys.executable, TRAINER, kind, *map(str, flags))


def spec_of(*command: str, **fields: object) -> dict[str, object]:
    """A declaration's spec."""
    return {"command": list(command), "environment": {"PYTHONPATH": ROOT}, **fields}


def notice_of(
    stage: TrainingStage, identity: str = "n1", within: float = 30.0, mode: NoticeMode = NoticeMode.SAVE_AND_EXIT
) -> NoticeGiven:
    """A notice with a deadline from now."""
    return NoticeGiven(id=identity, deadline=stage.clock.now() + within, mode=mode, reason="test")


def granted(
    run: int = 1, members: int = 1, *, notice: NoticeGiven | None = None, stop: Stop = Stop.NOT, uid: str = "u1",
    revision: int = 1, job: str = JOB, cards: int = 0, resources: Resources | None = None,
) -> TrainingGranted:  # fmt: skip
    """A grant; each member has so many virtual cards."""
    return TrainingGranted(
        job=job, uid=uid, revision=revision, run=run, notice=notice, stop=stop,
        members=tuple(
            MemberGrant(
                member=member_name(job, index), resources=resources or Resources(gpus=cards),
                placement=Placement(
                    node="local", gpus=tuple(f"virtual-{index * cards + card}" for card in range(cards))
                ),
            )
            for index in range(members)
        ),
    )  # fmt: skip


class TrainingStage(Stage):
    """The cluster under test, and its training jobs."""

    def __init__(self, folder: Path, settings: LocalSettings = QUICK, log: OpenedLog | None = None) -> None:
        super().__init__(folder, settings, log)
        self._settings = settings
        self._dead: list[ReplicaProcess] = []

    async def declare_job(self, spec: dict[str, object], **rest: object) -> None:
        """Declare a job; revision and generation 1, uid u1 unless given."""
        fields = {"job": JOB, "uid": "u1", "revision": 1, "generation": 1, **rest}
        await self.say(TrainingDeclared(spec=spec, **fields))  # type: ignore[arg-type]  # tests pass what fits

    async def job(self, job: str = JOB) -> TrainingObserved | None:
        """The newest state of a job."""
        async for record in self.log.read(Query(topic=Topic.REPLICAS, newest_per_key=True)):
            data = record.envelope.data
            if isinstance(data, TrainingObserved) and data.job == job:
                return data
        return None

    async def until_job(self, holds: Callable[[TrainingObserved], bool], job: str = JOB) -> TrainingObserved:
        """The first state seen for which `holds`; fails with the last one after `PATIENCE`."""
        state = await self.job(job)
        for _ in range(int(PATIENCE / 0.02)):
            if state is not None and holds(state):
                return state
            await asyncio.sleep(0.02)
            state = await self.job(job)
        raise AssertionError(f"not within {PATIENCE:g} s; the last state was {state}")

    async def running(self, run: int = 1) -> TrainingObserved:
        """Wait until a run has all its processes."""
        return await self.until_job(lambda state: state.run == run and state.state is RunState.RUNNING)

    async def stepping(self, run: int = 1) -> TrainingObserved:
        """Wait until it has said something."""
        return await self.until_job(lambda state: state.run == run and state.reports)

    async def trained(self) -> None:
        """Wait until rank 0 has trained a step: it has done what it does before."""
        steps = self.folder.training / "jobs" / JOB / "u1" / "work" / "steps-0.txt"
        for _ in range(int(PATIENCE / 0.02)):
            if steps.exists():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not train")

    async def empty(self, run: int = 1) -> TrainingObserved:
        """Wait until it has ended and its cards were seen empty."""
        return await self.until_job(lambda state: state.run == run and state.empty_at is not None)

    async def die(self) -> None:
        """As if relume were killed: nothing of it acts any more, and its pipes close. Then start the next cluster."""
        dead = self.cluster
        members = [member for run in dead._training._jobs.runs() for member in run.gang.members]
        tasks = list(dead._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            process = member.process
            if process is not None and process._shim.stdin is not None:
                process._following.cancel()
                process._shim.stdin.close()
                self._dead.append(process)  # asyncio kills a child that it forgets
        await dead._training.close()
        await dead._prober.close()
        writer = EventWriter("relume/cluster/local", self.clock)
        self.cluster = LocalCluster(self.log, writer, self.clock, self.folder, self._settings)

    async def revive(self) -> None:
        """The next relume."""
        await self.die()
        await self.cluster.start()

    async def close(self) -> None:
        """See `Stage.close`; the shims of clusters that died are asyncio's children too."""
        await super().close()
        async with asyncio.timeout(PATIENCE):
            for process in self._dead:
                await process._shim.wait()

    async def news(self) -> list[object]:
        """All that was told of checkpoints."""
        return await self.history(Topic.PHASES)
