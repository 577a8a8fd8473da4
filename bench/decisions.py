"""What a decision costs with the number of models, what a model costs in memory, and an edge among 10,000 models.

The decisions are those of the autoscaler's own fold and `decide`, on models that had three requests running for some
seconds. The edge is told to a whole `Autoscaler` over a log while all the others tell a window each second.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pydantic import JsonValue

from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import decide
from autoscaler.fold import Fold
from autoscaler.loop import Autoscaler
from autoscaler.settings import AutoscalerSettings
from bench import load
from bench.figures import Effort, Figure, Target, median, percentile
from deploy.compose.up import GIL_TURN
from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.log import Batch, EventLog, Position, Record, Start
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.models import ModelDeclared
from events.types.requests import Levels, RequestWindow
from events.units import Instant, Seconds
from events.writer import EventWriter
from runtime.desk.news import Newsagent

T0 = 1_000_000_000.0
EDGE_WITHIN = 15.0
"""Seconds: an edge that takes longer counts as this, and ends the measurement."""
STABLE = 60
"""Seconds of the stable window: so many windows a model has when it is full."""


async def run(effort: Effort) -> list[Figure]:
    """Microseconds a decision, KiB a model, milliseconds an edge."""
    counts = (10, 100) if effort.quick else (10, 1000, 10_000, 100_000)
    costs = {count: _decide_all(count, effort.rounds) for count in counts}
    figures = [_cost(count, *costs[count], growth=costs[counts[0]][0] / counts[0]) for count in counts]
    models = effort.size(300, 50)
    figures.append(
        Figure(f"memory of one of {models:,} active models", "KiB", _bytes_a_model(models) / 1024, target=Target(4.0))
    )
    return [*figures, *await _edges(effort)]


def _cost(count: int, mine: float, empty: float, growth: float) -> Figure:
    target = Target(150.0) if count == 10_000 else None
    why = f"{mine / count * 1e6:.1f} us each, {mine / count / growth:.2f} times what one of 10 models costs"
    return Figure(f"one decision each for {count:,} models", "ms CPU", mine * 1000, "an empty loop over as many",
                  empty * 1000, target, why=why)  # fmt: skip


def _decide_all(count: int, rounds: int) -> tuple[float, float]:
    """CPU seconds to decide each of so many active models once, and of an empty loop; the medians."""
    fold, now = _active(count, 3)
    mine, empty = [], []
    gc.collect()
    for _ in range(max(3, rounds)):
        began = time.process_time()
        for view in fold.models.values():
            snapshot = view.snapshot(now, fold.world)
            assert snapshot is not None
            assert view.declared is not None
            decide(snapshot, view.declared.policy, now)
        mine.append(time.process_time() - began)
        began = time.process_time()
        for _view in fold.models.values():
            pass
        empty.append(time.process_time() - began)
    return median(mine), median(empty)


def _active(count: int, seconds: int) -> tuple[Fold, Instant]:
    """A fold of models with three requests running for so many seconds."""
    fold = Fold(Agenda(), Seconds(2.0), Instant(T0))
    clock = _Hand()
    writer, offset = EventWriter("relume/gateway/bench", clock), 0
    fold.states_read()
    fold.history_read(Instant(T0 - 600), Instant(T0))
    names = [f"m{index}" for index in range(count)]
    told: list[object] = [declared(name) for name in names]
    for second in range(seconds + 1):
        for data in told:
            offset += 1
            fold.take(Record(Position("bench", 0, offset), clock.now(), writer.envelope(data)), clock.now())
        clock.at = T0 + second + 1
        told = [window(name, clock.at - 1, clock.at, 3) for name in names]
    return fold, Instant(clock.at + 0.5)


def _bytes_a_model(count: int) -> float:
    _active(1, 1)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fold, _ = _active(count, STABLE + 10)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        assert len(fold.models) == count
        return used / count
    finally:
        tracemalloc.stop()


class _Hand:
    """A clock that is set by hand."""

    at = T0

    def now(self) -> Instant:
        return Instant(self.at)

    async def sleep_until(self, instant: Instant) -> None:
        raise NotImplementedError("nobody sleeps here")


# An edge among active models


async def _edges(effort: Effort) -> list[Figure]:
    """One model after the other is asked for while all the others go on."""
    active, sleepers = effort.size(10_000, 200), effort.size(20, 3)
    with load.scratch() as scratch, _turns_of_relume():
        clock = SystemClock()
        async with SqliteEventLog(Path(scratch) / "events.db", clock) as log:
            world = _World(log, clock, active, sleepers)
            async with world.busy() as autoscaler:
                waits = await world.wake_all()
                decided = autoscaler.statistics().decided
                stats = log.stats()
    what = f"an edge to its recorded wish among {active:,} active models"
    why = (
        f"{len(waits)} edges; meanwhile {world.told / world.seconds:,.0f} windows/s were told, {decided:,} decisions "
        f"taken, {stats.offered:,} windows taken by the log, {stats.put_off:,} put off and merged, {stats.dropped:,} "
        "dropped"
    )
    return [
        Figure(f"{what}, p50", "ms", percentile(waits, 0.5) * 1000, why=why),
        Figure(f"{what}, largest", "ms", max(waits) * 1000, target=Target(100.0), why=why),
    ]


@contextmanager
def _turns_of_relume() -> Iterator[None]:
    """Threads let each other go on as soon as they do in `relume up`."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(GIL_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _World:
    """A log, an autoscaler on it, and a gateway that tells of all models."""

    def __init__(self, log: EventLog, clock: SystemClock, active: int, sleepers: int) -> None:
        self._log = log
        self._clock = clock
        self._gateway = EventWriter("relume/gateway/bench", clock)
        self._news = Newsagent(log, self._gateway)
        self._active = [f"busy-{index}" for index in range(active)]
        self._asleep = [f"asleep-{index}" for index in range(sleepers)]
        self.told = 0
        self._began = clock.now()

    @property
    def seconds(self) -> float:
        """Since the windows began."""
        return self._clock.now() - self._began

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[Autoscaler]:
        """The autoscaler at work, and all the active models telling a window a second."""
        every = [self._gateway.envelope(declared(name)) for name in (*self._active, *self._asleep)]
        for begin in range(0, len(every), 500):
            await self._log.append(every[begin : begin + 500])
        writer = EventWriter("relume/autoscaler/bench", self._clock)
        autoscaler = Autoscaler(self._log, self._clock, writer, AutoscalerSettings())
        await autoscaler.start()
        await autoscaler.wait_history_read()
        gc.collect()
        gc.freeze()  # as `relume up` does when it has started
        self._began = self._clock.now()
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.sleep(3.0)  # first wishes of all, then the steady state
            yield autoscaler
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await autoscaler.close()
            gc.unfreeze()

    async def wake_all(self) -> list[float]:
        """Seconds from each sleeper's edge to its wish in the log."""
        subscription = self._log.subscribe((Topic.DECISIONS,), Start("end"))
        batches = aiter(subscription)
        waits = []
        for name in self._asleep:
            now = self._clock.now()
            edge = window(name, now, now, 0, waiting=1)
            try:
                async with asyncio.timeout(EDGE_WITHIN):
                    self._news.tell(edge)
                    while not await _wished(batches, name):
                        pass
            except TimeoutError:
                waits.append(EDGE_WITHIN)
                break
            waits.append(self._clock.now() - now)
            if sum(waits) > 2 * EDGE_WITHIN:
                break
            await asyncio.sleep(0.15)
        await subscription.close()
        return waits

    async def _tell(self) -> None:
        """A window a second of each active model, in portions as the desk does."""
        portions = 50
        size = -(-len(self._active) // portions)
        ended = dict.fromkeys(self._active, self._clock.now())
        while True:
            for begin in range(0, len(self._active), size):
                due = Instant(self._clock.now() + 1 / portions)
                for name in self._active[begin : begin + size]:
                    now = self._clock.now()
                    self._news.tell(window(name, ended[name], now, 3))
                    self.told += 1
                    ended[name] = now
                await self._clock.sleep_until(due)
                await asyncio.sleep(0)
            self._news.flush()


async def _wished(batches: AsyncIterator[Batch], name: str) -> bool:
    batch = await anext(batches)
    return any(
        isinstance(record.envelope.data, WishDecided)
        and record.envelope.data.model == name
        and record.envelope.data.replicas > 0
        for record in batch.records
    )


def declared(name: str) -> ModelDeclared:
    """A model with four slots."""
    spec: dict[str, JsonValue] = {
        "slots": 4,
        "priority": 100,
        "scaling": {"maxReplicas": 10},
        "engine": {"type": "simulated"},
    }
    return ModelDeclared(model=name, uid="u", revision=1, generation=1, spec=spec)


def window(name: str, begin: float, end: float, running: int, waiting: int = 0) -> RequestWindow:
    """What a gateway tells of a model whose levels were the same all along."""
    return RequestWindow(
        model=name, uid="u", revision=1, gateway="bench", started_at=begin, ended_at=end,
        running_seconds=running * (end - begin), now=Levels(running=running, waiting=waiting), arrivals=running,
        finishes=running, edge=waiting > 0, oldest_waiting_since=begin if waiting else None,
    )  # fmt: skip
