"""Past demand is read back beside the live news, and is in the end what one reading in order would have known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from autoscaler import reading_back
from autoscaler.core.agenda import Agenda
from autoscaler.core.model import Snapshot
from autoscaler.fold import Fold
from autoscaler.loop import Autoscaler
from autoscaler.reading_back import PastReader
from autoscaler.settings import AutoscalerSettings
from autoscaler.waiting import Pauses
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.log import LogUnavailable, Position, Query, Record
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.requests import ActivationRequested, RequestArrived
from events.units import Instant, Seconds
from events.writer import EventWriter
from tests.support.autoscaling import T0, declared, window

NEWS = (Topic.REQUESTS, Topic.METRICS)
MODELS = ("a", "b", "c")


class SlowLog(MemoryEventLog):
    """A log of which a record is read in some turns of the loop, and that fails now and then."""

    def __init__(self, clock: SimulatedClock, drawn: random.Random) -> None:
        super().__init__(clock)
        self.drawn = drawn

    async def read(self, query: Query) -> AsyncIterator[Record]:
        async for record in super().read(query):
            for _ in range(self.drawn.randrange(3)):
                await asyncio.sleep(0)
            if self.drawn.random() < 0.01:
                raise LogUnavailable("the disk is slow")
            yield record


def fold() -> Fold:
    """One that knows the models."""
    made = Fold(Agenda(), Seconds(2.0), Instant(T0 - 600))
    writer = EventWriter("relume/admin", SimulatedClock(T0 - 600))
    for offset, model in enumerate(MODELS):
        envelope = writer.envelope(declared(model, uid=model))
        made.take(Record(Position(Topic.MODELS, 0, offset), Instant(T0 - 600), envelope), Instant(T0))
    made.states_read()
    return made


class Teller:
    """A gateway whose windows go to the log, a second at a time."""

    def __init__(self, log: SlowLog, clock: SimulatedClock, drawn: random.Random) -> None:
        self._log, self._clock, self._drawn = log, clock, drawn
        self._writer = EventWriter("relume/gateway/g", clock)

    async def second(self) -> list[Record]:
        """A second passes: a window of each model, now and then somebody asks for replicas. What the log has of it."""
        self._clock.set(self._clock.now() + 1)
        now, drawn = self._clock.now(), self._drawn
        said: list[object] = [window(now - 1, now, drawn.randrange(9), model=one, uid=one) for one in MODELS]
        if drawn.random() < 0.1:
            said.append(ActivationRequested(model="a", replicas=drawn.randrange(5), until=now + 90))
        positions = await self._log.append([self._writer.envelope(one) for one in said])
        return (await self.all())[-len(positions) :]

    async def all(self) -> list[Record]:
        """All that stands."""
        return [record async for record in MemoryEventLog.read(self._log, Query(Topic.REQUESTS))]


@pytest.mark.parametrize("seed", range(12))
async def test_both_together_know_what_one_in_order_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes live meanwhile, however slow the past is read, and though few live records are remembered."""
    drawn = random.Random(seed)
    monkeypatch.setattr(reading_back, "RECENT_MOST", drawn.choice((1, 8, 4096)))
    clock = SimulatedClock(T0)
    log = SlowLog(clock, drawn)
    teller, live = Teller(log, clock, drawn), fold()
    for _ in range(100):
        await teller.second()
    past = PastReader(log, clock, Pauses(clock, AutoscalerSettings()), live.begin_past())
    done, since = asyncio.Event(), Instant(T0)

    def join() -> None:
        live.join_past(since, clock.now())
        done.set()

    reading = asyncio.create_task(past.read(0, NEWS, since, join))
    while not done.is_set():
        for record in await teller.second():
            if not done.is_set():
                past.saw(record)
            live.take(record, clock.now())
        for _ in range(drawn.randrange(200)):
            await asyncio.sleep(0)
        await clock.advance(0.0)
    await reading
    assert views(live, clock.now()) == views(await in_order(teller, since, clock.now()), clock.now())


async def in_order(teller: Teller, since: Instant, now: Instant) -> Fold:
    """A fold of everything, from the first record to the last."""
    made = fold()
    for record in await teller.all():
        made.take(record, now)
    made.history_read(since, now)
    return made


def views(known: Fold, now: Instant) -> list[Snapshot]:
    """What decisions would see, whole."""
    found = [known.models[model].snapshot(now, known.world) for model in MODELS]
    assert all(one is not None and one.demand.stable is not None for one in found)
    return [one for one in found if one is not None]


async def test_an_edge_of_now_does_not_wait_for_the_past() -> None:
    """What is told live is known at once; averages are unknown until the past has been read."""
    clock = SimulatedClock(T0)
    live = fold()
    live.begin_past()
    told = EventWriter("relume/gateway/g", clock).envelope(window(T0 - 1, T0, 9, model="a", uid="a"))
    live.take(Record(Position(Topic.REQUESTS, 0, 7), Instant(T0), told), Instant(T0))
    snapshot = live.models["a"].snapshot(Instant(T0), live.world)
    assert snapshot is not None
    assert (snapshot.demand.running, snapshot.demand.stable, snapshot.history_read) == (9, None, False)


async def test_a_model_declared_meanwhile_is_known_to_the_past() -> None:
    """Its windows, which came before its past was through, count from the past."""
    clock = SimulatedClock(T0)
    live = fold()
    past = live.begin_past()
    writer = EventWriter("relume/gateway/g", clock)
    live.take(Record(Position(Topic.MODELS, 0, 9), Instant(T0), writer.envelope(declared("new"))), Instant(T0))
    told = writer.envelope(window(T0 - 5, T0, 4, model="new"))
    past.take(Record(Position(Topic.REQUESTS, 0, 1), Instant(T0), told), Instant(T0))
    live.join_past(Instant(T0 - 600), Instant(T0))
    snapshot = live.models["new"].snapshot(Instant(T0), live.world)
    assert snapshot is not None
    assert snapshot.demand.running == 4


async def said_in_between(*, decided_since: bool) -> list[tuple[str, int]]:
    """The wishes of an autoscaler that begins 10 s after somebody asked for replicas of `a` and a request came for `b`,
    while the past of the metrics cannot be read: history is unread. `decided_since`: `a` was decided after that."""

    class HalfRead(MemoryEventLog):
        async def read(self, query: Query) -> AsyncIterator[Record]:
            if query.topic == Topic.METRICS:
                raise LogUnavailable("not yet")
            async for record in super().read(query):
                yield record

    clock = SimulatedClock(T0)
    async with HalfRead(clock) as log:
        writer = EventWriter("acme", clock)

        async def say(*data: object) -> None:
            await log.append([writer.envelope(one) for one in data])

        async def decided() -> list[tuple[str, int]]:
            found = [record.envelope.data async for record in log.read(Query(Topic.DECISIONS))]
            return [(one.model, one.replicas) for one in found if isinstance(one, WishDecided)]

        await say(declared("a"), declared("b"))
        owner = AutoscalerSettings(owner="before")
        before = Autoscaler(log, clock, EventWriter("relume/before", clock), owner)
        await before.start()
        await settle()
        if not decided_since:
            await before.close()
        await clock.advance(30)
        await say(ActivationRequested(model="a", replicas=2), RequestArrived(model="b", request="r"))
        await settle()
        if decided_since:
            await clock.advance(1)
            await before.close()
        first = len(await decided())
        await clock.advance(10)
        after = Autoscaler(log, clock, EventWriter("relume/after", clock), AutoscalerSettings(owner="after"))
        await after.start()
        await settle()
        assert not after.history_read
        await after.close()
        return (await decided())[first:]


async def test_what_was_said_once_while_nobody_owned_counts_at_once() -> None:
    """An activation and a request of a foreign gateway, which nobody says again; what was decided on since is known."""
    assert dict(await said_in_between(decided_since=False)) == {"a": 2, "b": 1}
    assert await said_in_between(decided_since=True) == []


async def test_what_is_said_once_is_read_once_though_the_log_fails() -> None:
    """From its time on, before the live news, in order; other news is left out."""
    clock = SimulatedClock(T0)
    log = SlowLog(clock, random.Random(7))
    teller = Teller(log, clock, random.Random(8))
    for _ in range(200):
        await teller.second()
    wanted = [
        record.position
        for record in await teller.all()
        if isinstance(record.envelope.data, ActivationRequested) and T0 + 50 <= record.appended_at < T0 + 150
    ]
    assert wanted
    pauses = Pauses(clock, AutoscalerSettings())

    async def read() -> list[Position]:
        said = reading_back.read_said_once(log, pauses, 0, Instant(T0 + 50), Instant(T0 + 150))
        return [record.position async for record in said]

    reading = asyncio.create_task(read())
    while not reading.done():
        await clock.advance(0.1)
    assert await reading == wanted
    assert pauses.failures > 0
