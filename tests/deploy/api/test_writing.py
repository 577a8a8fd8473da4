"""Several admin ports that declare on one log: no change undoes another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from deploy.api import writing
from deploy.api.board import Board
from deploy.api.changing import Boards
from deploy.api.declaring import Declarations
from deploy.api.problem import ProblemError
from deploy.api.training_board import TrainingBoard
from deploy.spec.check import check_as
from deploy.spec.model import Model
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.envelope import AnyEnvelope
from events.following import Follower
from events.log import Batch, Position, Query, Start
from events.names import Topic
from events.types.models import ModelDeclared, Override
from events.units import Instant
from events.writer import EventWriter
from tests.support.skew import LATER

OVERRIDE = Override(replicas=3, until=Instant(4e9), by="test")


def model(slots: int = 4, **labels: str) -> Model:
    return check_as(Model, {
        "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": "echo", "labels": labels},
        "spec": {"engine": {"type": "simulated"}, "slots": slots},
    })  # fmt: skip


class Port:
    """One admin port's declarations: its own board, its own follower, and appends that take their time."""

    def __init__(self, log: MemoryEventLog, chance: random.Random) -> None:
        self._append = log.append
        self._chance = chance
        self.appended = 0
        clock = SystemClock()
        self.board = Board()
        self._follower = Follower(log, clock, (Topic.MODELS,), Start("newest_per_key"), self._take)
        writer = EventWriter("relume/admin/test", clock)
        self.declarations = Declarations(self, Boards(self.board, TrainingBoard()), writer, self._follower.caught_up)  # type: ignore[arg-type]  # it only appends

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """As the log, later: by then others have written too."""
        self.appended += 1
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        positions = await self._append(events)
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        return positions

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            self.board.apply(record.envelope, record.position.offset)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follower.run())
        await self._follower.caught_up.wait()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two_ports(seed: int) -> AsyncIterator[tuple[MemoryEventLog, Port, Port]]:
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(MemoryEventLog(SystemClock()))
        ports = [Port(log, random.Random(seed + number)) for number in range(2)]
        for port in ports:
            await stack.enter_async_context(port.running())
        yield log, ports[0], ports[1]


async def history(log: MemoryEventLog) -> list[ModelDeclared]:
    return [record.envelope.data async for record in log.read(Query(Topic.MODELS))]


async def known(port: Port, newest: ModelDeclared) -> None:
    """Wait until a port shows what stands in the log."""
    async with asyncio.timeout(10):
        while port.board.declared("echo") != newest:  # noqa: ASYNC110 - the board tells nobody
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(25))
async def test_a_spec_and_an_override_at_the_same_time(seed: int) -> None:
    """Both stand at the end, whoever came last, and no two different replicas share a revision."""
    async with two_ports(seed) as (log, one, other):
        await one.declarations.apply([model()])
        await known(other, (await history(log))[-1])
        await asyncio.gather(one.declarations.apply([model(slots=8)]), other.declarations.scale("echo", OVERRIDE))
        told = await history(log)
        assert (told[-1].spec["slots"], told[-1].override) == (8, OVERRIDE)
        assert told[-1].generation == max(one.generation for one in told)
        assert len({(one.revision, str(one.spec["slots"])) for one in told}) == len({one.revision for one in told})
        await known(one, told[-1])
        await known(other, told[-1])


@pytest.mark.parametrize("seed", range(25))
async def test_two_create_the_same_name(seed: int) -> None:
    """One of them came first: its uid stands, with the other's document upon it."""
    async with two_ports(seed) as (log, one, other):
        await asyncio.gather(one.declarations.apply([model(slots=2)]), other.declarations.apply([model(slots=6)]))
        told = await history(log)
        assert told[-1].uid == told[0].uid
        assert told[-1].spec["slots"] in (2, 6)
        assert told[-1].revision > told[0].revision


@pytest.mark.parametrize("seed", range(25))
async def test_one_deletes_and_one_changes(seed: int) -> None:
    """Deleted and then declared anew, or changed and then deleted: never both, and never half."""
    async with two_ports(seed) as (log, one, other):
        await one.declarations.apply([model()])
        await known(other, (await history(log))[-1])
        first = (await history(log))[0]
        await asyncio.gather(one.declarations.delete("echo"), other.declarations.apply([model(slots=8)]))
        last = (await history(log))[-1]
        assert last.deleted or (last.uid != first.uid and last.spec["slots"] == 8), last


@pytest.mark.parametrize("change", ["scale", "unscale", "delete"])
async def test_what_a_later_release_said_is_kept(change: str) -> None:
    """Its declaration has fields that are not known here, in the spec and beside it: whoever scales or deletes it from
    here writes them again."""
    async with two_ports(1) as (log, one, _):
        await one.declarations.apply([model()])
        (first,) = await history(log)
        spec = {**first.spec, "resources": {LATER: 1}, LATER: {"a": 1}}
        later = replace(first, spec=spec, override=OVERRIDE, generation=2, further={LATER: [1]})
        await log.append([EventWriter("relume/admin/later", SystemClock()).envelope(later)])
        await known(one, later)
        if change == "delete":
            await one.declarations.delete("echo")
        else:
            await one.declarations.scale("echo", None if change == "unscale" else replace(OVERRIDE, replicas=5))
        last = (await history(log))[-1]
        assert (last.spec, last.further, last.generation) == (spec, {LATER: [1]}, 3)


async def test_one_alone_writes_once() -> None:
    """Without another writer there is one append a change."""
    async with two_ports(1) as (_, one, _other):
        await one.declarations.apply([model()])
        await one.declarations.scale("echo", OVERRIDE)
        await one.declarations.scale("echo", OVERRIDE)
        assert one.appended == 2


async def test_others_who_never_cease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after a bound, and said."""
    async with two_ports(1) as (log, one, _):
        await one.declarations.apply([model()])
        append = one.append
        count = 0

        async def with_another(events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
            nonlocal count
            count += 1
            data: ModelDeclared = events[0].data
            stranger = EventWriter("relume/admin/other", SystemClock())
            await log.append([stranger.envelope(data)])
            return await append(events)

        monkeypatch.setattr(one, "append", with_another)
        with pytest.raises(ProblemError, match="again and again"):
            await one.declarations.scale("echo", OVERRIDE)
        assert count == writing.TRIES


async def test_a_log_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is written, though it cannot be read back: the answer comes within the bound."""
    monkeypatch.setattr(writing, "HEARD_WITHIN", 0.05)
    async with two_ports(1) as (log, one, _):
        monkeypatch.setattr(one, "_take", lambda _: None)
        one._follower._take = lambda _: None
        await one.declarations.apply([model()])
        assert len(await history(log)) == 1
