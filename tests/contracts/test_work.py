"""The contract of `events.work.WorkQueue`, over every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.memory import MemoryEventLog
from events.adapters.sqlite import SqliteEventLog, SqliteSettings
from events.clock import SystemClock
from events.codec import Unencodable
from events.envelope import AnyEnvelope, Envelope
from events.log import EventLog, LogClosed, Query
from events.names import Topic
from events.types.inference import InferenceCompleted, InferenceRequested, Origin
from events.units import Instant
from events.work import Assigned, Effect, Mark, Place, WorkBatch, WorkItem, WorkLog, WorkQueue
from tests.support.kafka_broker import shared_broker
from tests.support.kafka_logs import quick_settings, wipe

KAFKA = pytest.param("kafka", marks=[pytest.mark.needs("kafka"), pytest.mark.slow])
TOPICS = (str(Topic.INFERENCE_REQUESTS), str(Topic.INFERENCE_PARKED))
PATIENCE = 60.0
GROUP = "relume.test"


class Log(EventLog, WorkLog, Protocol):
    """What is tried."""


Opened = Callable[[], AbstractAsyncContextManager[Log]]


@pytest.fixture(params=["memory", "sqlite", KAFKA])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the log; again: the same log."""
    clock = SystemClock()
    memory = MemoryEventLog(clock, partitions=3)
    if request.param == "kafka":
        wipe(shared_broker())

    def open_log() -> AbstractAsyncContextManager[Log]:
        if request.param == "memory":
            return _Kept(memory)
        if request.param == "sqlite":
            return SqliteEventLog(tmp_path / "events.db", clock, SqliteSettings(partitions=3))
        return KafkaEventLog(quick_settings(shared_broker()), clock)

    return open_log


class _Kept:
    """A memory log that outlives its opening, as the others do."""

    def __init__(self, log: MemoryEventLog) -> None:
        self._log = log

    async def __aenter__(self) -> MemoryEventLog:
        return self._log

    async def __aexit__(self, *_: object) -> None:
        return None


class Worker:
    """Reads a queue in a task; what it holds and was given."""

    def __init__(self, queue: WorkQueue) -> None:
        self.queue = queue
        self.held: dict[Place, Assigned] = {}
        self.items: dict[str, WorkItem] = {}
        self.batches: list[WorkBatch] = []
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait for it."""
        async with asyncio.timeout(PATIENCE):
            while not wanted():
                self._more.clear()
                await self._more.wait()

    async def settle(self, *idents: str, mark: Mark | None = None) -> frozenset[Place]:
        """Answer these; each place's mark is after the last of them unless one is given."""
        effects: dict[Place, Effect] = {}
        for ident in idents:
            item = self.items[ident]
            before = effects.get(item.place)
            events = (*(before.events if before else ()), answer(ident))
            reached = mark or Mark(item.position.offset + 1)
            effects[item.place] = Effect(self.held[item.place].term, events, reached)
        return await self.queue.settle(effects)

    async def close(self) -> None:
        """Leave."""
        await self.queue.close()
        await self._task

    async def _run(self) -> None:
        async for batch in self.queue:
            for place in batch.revoked:
                self.held.pop(place, None)
            self.held |= {one.place: one for one in batch.assigned}
            for item in batch.items:
                if item.envelope is not None:
                    self.items[item.envelope.id] = item
            self.batches.append(batch)
            self._more.set()


def request(ident: str, model: str = "llama") -> AnyEnvelope:
    data = InferenceRequested(body={"model": model})
    return Envelope(id=ident, source="//shop", subject=model, key=model, time=Instant(1.0), data=data)


def answer(ident: str, body: object = None) -> AnyEnvelope:
    origin = Origin(id=ident, source="//shop")
    data = InferenceCompleted(model="llama", origin=origin, status=200, body=body)  # type: ignore[arg-type]  # JSON
    return Envelope(
        id=f"outcome/{ident}", source="relume/inference", subject="llama", key="llama", time=Instant(2.0), data=data,
        cause=ident,
    )  # fmt: skip


async def answers(log: Log) -> list[str]:
    return [str(r.envelope.cause) async for r in log.read(Query(Topic.INFERENCE_RESULTS))]


@pytest.fixture
async def log(opened: Opened) -> AsyncIterator[Log]:
    """An open log."""
    async with opened() as log:
        yield log


async def test_it_assigns_every_partition_and_delivers_what_stood_and_what_comes(log: Log) -> None:
    """Both topics, from the beginning when no work was done."""
    await log.append([request("a")])
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: len(worker.held) == 6)
    await log.append([request("b"), request("c", "other")])
    await worker.until(lambda: set(worker.items) == {"a", "b", "c"})
    await worker.close()


async def test_effect_and_offset_are_one(opened: Opened) -> None:
    """What was settled is written and not delivered again; what was not, is; what is done beyond the offset is told."""
    async with opened() as log:
        await log.append([request(name) for name in "abcd"])
        worker = Worker(log.work(TOPICS, GROUP, "one"))
        await worker.until(lambda: len(worker.items) == 4)
        offsets = {name: worker.items[name].position.offset for name in "abcd"}
        await worker.settle("a")
        mark = Mark(offsets["b"], (offsets["c"],))
        assert await worker.settle("c", mark=mark) == {worker.items["c"].place}
        await worker.close()
    async with opened() as log:
        assert await answers(log) == ["a", "c"]
        worker = Worker(log.work(TOPICS, GROUP, "one"))
        await worker.until(lambda: {"b", "c", "d"} <= set(worker.items))
        assert "a" not in worker.items
        assert worker.held[worker.items["b"].place].mark == mark
        await worker.close()


async def test_the_same_settlement_again_writes_nothing_twice(log: Log) -> None:
    """As after an answer that got lost."""
    await log.append([request("a")])
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: "a" in worker.items)
    await worker.settle("a")
    await worker.close()
    again = Worker(log.work(TOPICS, GROUP, "one"))
    again.items |= worker.items
    await again.until(lambda: len(again.held) == 6)
    await again.settle("a")
    await again.close()
    assert await answers(log) == ["a"]


async def test_a_held_place_delivers_nothing(log: Log) -> None:
    """Others go on; when it is held no more, it goes on where it was."""
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: len(worker.held) == 6)
    await log.append([request("a"), request("z", "zebra")])
    await worker.until(lambda: len(worker.items) == 2)
    first, second = worker.items["a"].place, worker.items["z"].place
    assert first != second
    worker.queue.hold([first])
    await asyncio.sleep(0.3)  # Kafka's consumer looks each 50 ms; what is shown does not hang on it
    await log.append([request("b"), request("y", "zebra")])
    await worker.until(lambda: "y" in worker.items)
    assert "b" not in worker.items
    worker.queue.hold([])
    await worker.until(lambda: "b" in worker.items)
    await worker.close()


async def test_what_cannot_be_written_leaves_nothing(log: Log) -> None:
    """Refused before anything is written; the others of the place can be settled afterwards."""
    await log.append([request("a"), request("b")])
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: len(worker.items) == 2)
    item = worker.items["b"]
    term = worker.held[item.place].term
    nothing = replace(answer("b"), data="no event type")
    wrong = Effect(term, (answer("a"), nothing), Mark(item.position.offset + 1))
    with pytest.raises(Unencodable):
        await worker.queue.settle({item.place: wrong})
    assert await answers(log) == []
    await worker.settle("a", "b")
    assert await answers(log) == ["a", "b"]
    await worker.close()


async def test_who_left_settles_nothing(log: Log) -> None:
    """LogClosed; the work is somebody else's."""
    await log.append([request("a")])
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: "a" in worker.items)
    await worker.close()
    with pytest.raises(LogClosed):
        await worker.settle("a")
    assert await answers(log) == []


async def test_many_settlements_keep_their_order_within_a_place(log: Log) -> None:
    """Fifty, one after the other, as one transaction each."""
    names = [f"r{number:02}" for number in range(50)]
    await log.append([request(name) for name in names])
    worker = Worker(log.work(TOPICS, GROUP, "one"))
    await worker.until(lambda: len(worker.items) == 50)
    for name in names:
        await worker.settle(name)
    assert await answers(log) == names
    await worker.close()
