"""The rounds in which lags are measured: when, how many at once, what is told, what a cluster that is away costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from autoscaler.core.lag import Look, Offsets
from autoscaler.core.policy import LagPolicy, QueryPolicy, ScalingPolicy, Series, SignalPolicy
from autoscaler.core.query import Answer
from autoscaler.gauges import Readers
from autoscaler.measuring import AT_ONCE, LOOK_MOST, Measuring
from autoscaler.ports import LagUnknown, QueryUnknown
from events.clock import SimulatedClock
from events.envelope import AnyEnvelope
from events.types.metrics import LagMeasured, QueryMeasured
from events.units import Seconds
from events.writer import EventWriter
from tests.autoscaler.test_lag import POLICY as LAG
from tests.support.autoscaling import POLICY


def model(*lags: LagPolicy) -> ScalingPolicy:
    signals = tuple(SignalPolicy(name=f"s{index}", lag=lag) for index, lag in enumerate(lags))
    return replace(POLICY, signals=(*signals, SignalPolicy(name="told by others")))


class Reader:
    """Ten records of lag everywhere; clusters in `away` say so, those in `stuck` say nothing, `broken` ones raise."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self.looks: list[tuple[float, LagPolicy]] = []
        self.away: set[str] = set()
        self.broken: set[str] = set()
        self.stuck: set[str] = set()
        self.waiting = 0
        self.closed = False

    async def look(self, lag: LagPolicy) -> Look:
        self.looks.append((self._clock.now(), lag))
        if lag.cluster in self.away:
            raise LagUnknown(
                f"nobody answered within {2999 + len(self.looks) % 2} ms (again in 0.0{len(self.looks)} secs)"
            )
        if lag.cluster in self.broken:
            raise LookupError("a bug of the reader")
        if lag.cluster in self.stuck:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return Look(self._clock.now(), {("t", 0): Offsets(0, 10, 0)})

    def close(self) -> None:
        self.closed = True


class Answers:
    """Answers queries with what it was given; a query that it does not know is refused."""

    def __init__(self) -> None:
        self.known: dict[str, Answer] = {}
        self.closed = False

    async def ask(self, query: QueryPolicy) -> Answer:
        if query.query not in self.known:
            raise QueryUnknown("the server answers 400: parse error")
        return self.known[query.query]

    def close(self) -> None:
        self.closed = True


class World:
    """Measuring on a simulated clock."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.reader = Reader(self.clock)
        self.answers = Answers()
        self.models: dict[str, ScalingPolicy] = {}
        self.told: list[LagMeasured] = []
        self.queried: list[QueryMeasured] = []
        self.full = False
        writer = EventWriter("relume/signals/test", self.clock)
        self.measuring = Measuring(self._owned, Readers(self.reader, self.answers), self._offer, self.clock, writer)

    def _owned(self) -> Iterable[tuple[str, ScalingPolicy]]:
        return self.models.items()

    def _offer(self, envelope: AnyEnvelope) -> bool:
        if not self.full:
            data = envelope.data
            (self.queried if isinstance(data, QueryMeasured) else self.told).append(data)
        return not self.full

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Let the time go on until something is so."""
        for _ in range(200):
            if wanted():
                return
            await self.clock.advance(0.5)
        raise AssertionError("never")


@asynccontextmanager
async def measuring(**models: ScalingPolicy) -> AsyncIterator[World]:
    world = World()
    world.models = dict(models)
    task = asyncio.create_task(world.measuring.run())
    try:
        await world.clock.advance(0.0)
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.reader.closed


async def test_each_lag_as_often_as_it_says() -> None:
    """At once when it is declared, then every `every`; with rates from the second on."""
    async with measuring(a=model(LAG), b=model(replace(LAG, every=Seconds(2.0)))) as world:
        await world.clock.advance(10.0)
        assert [sum(one.model == name for one in world.told) for name in "ab"] == [3, 6]
        first, *_, last = [one for one in world.told if one.model == "a"]
        assert (first.name, first.lag, first.produced, last.produced) == ("s0", 10, None, 0.0)


async def test_what_is_declared_anew_or_no_longer() -> None:
    """A changed lag begins anew; one that is gone is not measured, and one that is new is, at once."""
    async with measuring(a=model(LAG)) as world:
        await world.clock.advance(5.5)
        world.models["a"] = model(replace(LAG, group="other"))
        await world.clock.advance(1.0)
        assert [lag.group for _, lag in world.reader.looks] == ["g", "g", "other"]
        assert world.told[-1].produced is None, "the other group's offsets are not compared with these"
        world.models.clear()
        await world.clock.advance(60.0)
        assert len(world.reader.looks) == 3
        assert world.measuring.counts().measured == 0


async def test_a_cluster_that_is_away_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """As a measurement without a number, with the reason; in the process's own log once, however long each look was."""
    async with measuring(a=model(replace(LAG, cluster="c"))) as world:
        world.reader.away.add("c")
        await world.clock.advance(20.0)
        later = world.told[-1]
        assert (later.lag, later.error[:15], later.model, later.name) == (None, "nobody answered", "a", "s0")
        assert len({one.error for one in world.told}) > 1
        assert (
            sum("s0 of a cannot be measured: nobody answered" in record.getMessage() for record in caplog.records) == 1
        )
        world.reader.away.clear()
        await world.until(lambda: world.told[-1].lag == 10)
        assert world.measuring.counts().failures >= 3


async def test_a_readers_bug_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """As any other failure, and once with its place; the number is not left at what it was without a word."""
    async with measuring(a=model(replace(LAG, cluster="c"))) as world:
        world.reader.broken.add("c")
        await world.clock.advance(20.0)
        assert (world.told[-1].lag, world.told[-1].error) == (None, "LookupError: a bug of the reader")
        assert [bool(record.exc_info) for record in caplog.records if "cannot be measured" in record.message] == [True]
        world.reader.broken.clear()
        await world.until(lambda: world.told[-1].lag == 10)


async def test_a_cluster_that_is_stuck_holds_up_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few looks wait there; other clusters are measured as ever; each ends at the bound."""
    monkeypatch.setattr("autoscaler.measuring.LOOK_MOST", Seconds(0.05))
    many = {f"m{index}": model(replace(LAG, cluster="stuck")) for index in range(20)}
    async with measuring(**many, well=model(LAG)) as world:
        world.reader.stuck.add("stuck")
        for _ in range(3):
            await world.clock.advance(5.0)
            assert world.reader.waiting <= AT_ONCE
        assert sum(one.model == "well" and one.lag == 10 for one in world.told) >= 3
        async with asyncio.timeout(10):
            while not any(one.error for one in world.told):  # noqa: ASYNC110 - the bound is real time
                await asyncio.sleep(0.01)
        assert "no answer within" in next(one.error for one in world.told if one.error)
    assert LOOK_MOST > 10, "the reader's own bound comes first"


async def test_a_log_that_takes_nothing_is_counted() -> None:
    """What could not be told is news that is lost, and known to be."""
    async with measuring(a=model(LAG)) as world:
        world.full = True
        await world.clock.advance(5.5)
        assert world.measuring.counts().untold == 1


async def test_queries_are_measured_beside_lags() -> None:
    """A query that is answered is told with its delay; one that is refused is told with the reason, and both come
    again; lags of the same model go on."""
    queries = [
        SignalPolicy(
            name=name,
            query=QueryPolicy(query=query, server="", every=Seconds(5.0), series=Series.ONE, empty_is_zero=False),
        )
        for name, query in {"good": "up", "bad": "up("}.items()
    ]
    lags = model(LAG)
    async with measuring(m=replace(lags, signals=(*lags.signals, *queries))) as world:
        world.answers.known["up"] = Answer((3.0,), Seconds(7.0))
        await world.until(lambda: [one.name for one in world.queried if one.value is not None] == ["good", "good"])
    good = [one for one in world.queried if one.name == "good" and one.value is not None]
    bad = [one for one in world.queried if one.name == "bad"]
    assert (good[0].value, good[0].delay, good[0].error) == (3.0, 7.0, "")
    assert (bad[-1].value, bad[-1].error) == (None, "the server answers 400: parse error")
    assert world.told
    assert world.answers.closed
