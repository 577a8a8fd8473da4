"""The controller's share of a reclaim among 1,000 and 10,000 GPUs: the whole `Allocator` over the SQLite log.

All cards are lent to training jobs of 1, 2, 4 and 8. One model after the other wakes and wants a whole node. *Plan and
notice*: from its wish in the log to the grants with the notices in the log (the attempts' records are written before).
*Bind*: from the report that the victims' cards are empty to the model's grant (again with the records before). What the
trainers do in between is nobody's share of this.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from bench import load
from bench.figures import Effort, Figure, Target, percentile
from events.adapters.sqlite import SqliteEventLog
from events.clock import Clock, SystemClock
from events.log import Batch, EventLog, Start
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, Placement
from events.types.models import ModelDeclared
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberGrant,
    MemberStatus,
    NoticeStatus,
    RunState,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from events.writer import EventWriter
from preemption.loop import Allocator, AllocatorSettings

NODE_CARDS = 8
WITHIN = 300.0
"""Seconds; and a pool has 120 victims an hour, so there are no more reclaims than 24."""

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds of CPU, one of each a reclaim."""

    notice: list[float]
    bind: list[float]

    @property
    def share(self) -> list[float]:
        """Both together."""
        return [one + other for one, other in zip(self.notice, self.bind, strict=True)]


async def run(effort: Effort) -> list[Figure]:
    """Milliseconds of CPU, of the allocator, the log and the hands of everybody else together: all that it takes, but
    the waiting for the disk. The target is of design §11."""
    figures: list[Figure] = []
    for gpus in (64, 128) if effort.quick else (1000, 10_000):
        waits = await _measure(gpus, effort.size(24, 5))
        target = Target(200.0) if gpus == 1000 else None
        for what, found in (("plan and notice", waits.notice), ("bind", waits.bind), ("together", waits.share)):
            figures.append(
                Figure(f"reclaim among {gpus:,} GPUs: {what}, p99", "ms CPU", percentile(found, 0.99) * 1000,
                       low=min(found) * 1000, high=max(found) * 1000, target=target if what == "together" else None,
                       why=f"p50 {percentile(found, 0.5) * 1000:.1f} ms")
            )  # fmt: skip
    return figures


async def _measure(gpus: int, count: int) -> Waits:
    with load.scratch() as scratch:
        clock = SystemClock()
        async with SqliteEventLog(Path(scratch) / "events.db", clock) as log:
            bench = _Bench(log, clock)
            await bench.fill(gpus, [f"m{index}" for index in range(count)])
            allocator = Allocator(log, clock, EventWriter("relume/allocator", clock), AllocatorSettings("bench"))
            running = asyncio.create_task(allocator.run())
            try:
                async with asyncio.timeout(WITHIN):
                    await allocator.caught_up.wait()
                return await bench.reclaim_each(count)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


class _Bench:
    """The hands of everybody else: people, the autoscaler, the cluster's adapter."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._hands = EventWriter("bench/hands", clock)
        self._seen: dict[str, TrainingObserved] = {}

    async def fill(self, gpus: int, models: list[str]) -> None:
        """All cards are lent, as a leader before us left them; the models are at zero."""
        draw, said = random.Random(gpus), list[object]()
        for row in range(gpus // NODE_CARDS):
            cards = tuple(Card(id=f"n{row}-{column}", virtual=True) for column in range(NODE_CARDS))
            said.append(CardsObserved(node=f"n{row}", cpu=128.0, memory_bytes=512 * GIB, cards=cards))
            column = 0
            while column < NODE_CARDS:
                size = min(draw.choice((1, 1, 2, 4, 8)), NODE_CARDS - column)
                said += self._job(f"j{row}-{column}", f"n{row}", range(column, column + size), draw.uniform(1, 4000))
                column += size
        said += [
            ModelDeclared(model=name, uid="u", revision=1, generation=1, spec=_spec(NODE_CARDS)) for name in models
        ]
        for begin in range(0, len(said), 500):
            await self._log.append([self._hands.envelope(one) for one in said[begin : begin + 500]])

    async def reclaim_each(self, count: int) -> Waits:
        """One model after the other wakes, and is served."""
        batches = self._log.subscribe((Topic.GRANTS,), Start("end"))
        stream, waits = aiter(batches), Waits([], [])
        try:
            async with asyncio.timeout(WITHIN + count):
                while not (await anext(stream)).caught_up:
                    pass
                for index in range(count):
                    await self._reclaim_one(stream, f"m{index}", waits)
        finally:
            await batches.close()
        return waits

    async def _reclaim_one(self, stream: AsyncIterator[Batch], model: str, waits: Waits) -> None:
        began = time.process_time()
        await self._say(_wish(model))
        told: list[TrainingGranted] = []
        while sum(len(one.members[0].placement.gpus) for one in told) < NODE_CARDS:
            told += [one for one in await _some(stream) if isinstance(one, TrainingGranted) and one.notice is not None]
        waits.notice.append(time.process_time() - began)
        done = [self._ended(one) for one in told]
        began = time.process_time()
        await self._say(*done)
        while not any(isinstance(one, GrantDecided) and one.replicas for one in await _some(stream)):
            pass
        waits.bind.append(time.process_time() - began)

    def _job(self, name: str, node: str, columns: range, age: float) -> list[object]:
        now, resources = self._clock.now(), Resources(gpus=len(columns), cpu=1.0, memory_bytes=GIB)
        placement = Placement(node=node, gpus=tuple(f"{node}-{column}" for column in columns))
        member = MemberGrant(member=f"{name}-0", placement=placement, resources=resources)
        status = MemberStatus(member=member.member, node=node, gpus=placement.gpus, resources=resources)
        spec = _spec(len(columns)) | {"priority": 0, "command": ["train"]}
        self._seen[name] = TrainingObserved(
            job=name, uid="u", revision=1, run=1, state=RunState.RUNNING, members=(status,), started_at=now - 50_000,
            reports=True, step=1000, step_at=now,
            checkpoint=CheckpointStatus(step=900, at=now - age, manifest="m", seconds=30.0, verified=True),
        )  # fmt: skip
        return [
            TrainingDeclared(job=name, uid="u", revision=1, generation=1, spec=spec),
            TrainingGranted(job=name, uid="u", revision=1, run=1, members=(member,), reasons=("runs",)),
            self._seen[name],
        ]

    def _ended(self, told: TrainingGranted) -> TrainingObserved:
        """The trainer has saved and ended, and its cards are empty."""
        assert told.notice is not None
        now = self._clock.now()
        saved = CheckpointStatus(step=1000, at=now, manifest="m2", seconds=30.0, verified=True)
        return replace(
            self._seen[told.job], state=RunState.ENDED, ending=Ending.SAVED, ended_at=now, empty_at=now,
            checkpoint=saved,
            notice=NoticeStatus(id=told.notice.id, heard_at=now, saved_step=1000),
        )  # fmt: skip

    async def _say(self, *data: object) -> None:
        await self._log.append([self._hands.envelope(one) for one in data])


def _spec(gpus: int) -> dict[str, JsonValue]:
    return {"resources": {"gpus": gpus, "cpu": 1, "memory": "1Gi"}, "priority": 100}


def _wish(model: str) -> WishDecided:
    return WishDecided(
        model=model, uid="u", revision=1, replicas=1, priority=100, reasons=("edge",), snapshot={}, policy={}, memory={}
    )


async def _some(stream: AsyncIterator[Batch]) -> list[object]:
    """What is written next."""
    return [record.envelope.data for record in (await anext(stream)).records]
