"""Several admin ports that declare training jobs on one log: no change undoes another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from deploy.api.board import Board
from deploy.api.changing import Boards
from deploy.api.declaring import Declarations
from deploy.api.training_board import TrainingBoard
from deploy.spec.check import check_as
from deploy.spec.model import Model
from deploy.spec.training import TrainingJob
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.envelope import AnyEnvelope
from events.following import Follower
from events.log import Batch, Position, Query, Start
from events.names import Topic
from events.types.training import TrainingDeclared
from events.writer import EventWriter
from tests.support.specs import put, smallest, smallest_training


def job(priority: int = 0, command: str = "train") -> TrainingJob:
    document = put(smallest_training(), "spec.priority", priority)
    return check_as(TrainingJob, put(document, "spec.command", [command]))


class Port:
    """One admin port's declarations: its own boards, its own follower, and appends that take their time."""

    def __init__(self, log: MemoryEventLog, chance: random.Random) -> None:
        self._append = log.append
        self._chance = chance
        clock = SystemClock()
        self.boards = Boards(Board(), TrainingBoard())
        self._follower = Follower(log, clock, (Topic.MODELS,), Start("newest_per_key"), self._take)
        writer = EventWriter("relume/admin/test", clock)
        self.declarations = Declarations(self, self.boards, writer, self._follower.caught_up)  # type: ignore[arg-type]  # it only appends

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """As the log, later: by then others have written too."""
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        positions = await self._append(events)
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        return positions

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            self.boards.models.apply(record.envelope, record.position.offset)
            self.boards.training.apply(record.envelope, record.position.offset)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follower.run())
        await self._follower.caught_up.wait()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two_ports(seed: int) -> AsyncIterator[tuple[MemoryEventLog, Port, Port]]:
    """Two ports that know a job called tune."""
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(MemoryEventLog(SystemClock()))
        ports = [Port(log, random.Random(seed + number)) for number in range(2)]
        for port in ports:
            await stack.enter_async_context(port.running())
        await ports[0].declarations.apply([job()])
        async with asyncio.timeout(10):
            while ports[1].boards.training.book.newest("tune") is None:  # noqa: ASYNC110 - the board tells nobody
                await asyncio.sleep(0)
        yield log, ports[0], ports[1]


async def last(log: MemoryEventLog) -> TrainingDeclared:
    told: list[TrainingDeclared] = [record.envelope.data async for record in log.read(Query(Topic.MODELS))]
    return told[-1]


@pytest.mark.parametrize("seed", range(20))
async def test_a_pause_and_a_changed_document_at_the_same_time(seed: int) -> None:
    """Both stand at the end, whoever came last."""
    async with two_ports(seed) as (log, one, other):
        await asyncio.gather(one.declarations.apply([job(7, "other")]), other.declarations.pause("tune", paused=True))
        told = await last(log)
        assert (told.spec["priority"], told.paused, told.revision) == (7, True, 2)


@pytest.mark.parametrize("seed", range(20))
async def test_a_cancellation_is_undone_by_nobody(seed: int) -> None:
    """Neither by a resume nor by a document that came at the same time."""
    async with two_ports(seed) as (log, one, other):
        await one.declarations.pause("tune", paused=True)
        results = await asyncio.gather(
            one.declarations.cancel("tune"), other.declarations.pause("tune", paused=False),
            other.declarations.apply([job(3)]), return_exceptions=True,
        )  # fmt: skip
        told = await last(log)
        assert told.cancelled, results
        assert told.spec["priority"] == 3


@pytest.mark.parametrize("seed", range(20))
async def test_one_deletes_and_one_pauses(seed: int) -> None:
    """Deleted is deleted: a pause that came at the same time brings nothing back."""
    async with two_ports(seed) as (log, one, other):
        await asyncio.gather(
            one.declarations.delete_training("tune"), other.declarations.pause("tune", paused=True),
            return_exceptions=True,
        )  # fmt: skip
        assert (await last(log)).deleted


async def test_both_kinds_are_appended_at_once() -> None:
    """A model and a job of one text are one append: all or none."""
    async with two_ports(1) as (log, one, _):
        before = len([record async for record in log.read(Query(Topic.MODELS))])
        appended: list[int] = []
        append = one._append

        async def counted(events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
            appended.append(len(events))
            return await append(events)

        one._append = counted
        await one.declarations.apply([check_as(Model, smallest()), job(5)])
        assert appended == [2]
        assert len([record async for record in log.read(Query(Topic.MODELS))]) == before + 2
