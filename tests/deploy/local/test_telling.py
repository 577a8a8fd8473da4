"""Publishing, alarms, places: what waits, and how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from deploy.local.alarms import Alarms
from deploy.local.places import Places
from deploy.local.publisher import Publisher
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Position, Query
from events.names import ModelName, Topic
from events.payload import Unencodable
from events.types.metrics import ReplicaMetrics
from events.types.replicas import ReplicasObserved
from events.units import Instant, Seconds
from events.writer import EventWriter

A, B, C = ModelName("a"), ModelName("b"), ModelName("c")


class Faulty(MemoryEventLog):
    """A log that cannot be written or offered to while it is told so, and takes no event of the key `refused`."""

    down = False
    refused = ""

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.down:
            raise LogUnavailable("disk full")
        if self.refused in [event.key for event in events]:
            raise Unencodable("the event is too large")
        return await super().append(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        return not self.down and super().offer(envelope)


class Told:
    """A publisher of numbers, in `failures`, over a log that may fail."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.log: Faulty = Faulty(self.clock)
        self.numbers = {A: 0, B: 0}
        self.writer = EventWriter("relume/test", self.clock)
        self.publisher = Publisher(self.log, self.writer, self.clock, self.make)

    def make(self, name: ModelName) -> tuple[ReplicasObserved, None]:
        return ReplicasObserved(model=name, uid="u", replicas=(), failures=self.numbers[name]), None

    def change(self, name: ModelName, number: int) -> None:
        self.numbers[name] = number
        self.publisher.mark(name)

    async def seen(self) -> list[tuple[str, int]]:
        records = [record.envelope.data async for record in self.log.read(Query(topic=Topic.REPLICAS))]
        return [(data.model, data.failures) for data in records]


async def test_changes_become_one_record() -> None:
    """Many changes before the task gets to it are one state, the newest; the same state is not told again."""
    told = Told()
    running = asyncio.create_task(told.publisher.run())
    for number in range(5):
        told.change(A, number)
    told.change(B, 7)
    await told.publisher.wait_idle()
    assert await told.seen() == [("a", 4), ("b", 7)]
    told.change(A, 4)
    await told.publisher.wait_idle()
    assert len(await told.seen()) == 2
    running.cancel()


async def test_a_state_that_is_hidden_is_said_again() -> None:
    """Though nothing changed, and under the epoch of the writer; once."""
    told = Told()
    told.writer.epoch = 7
    running = asyncio.create_task(told.publisher.run())
    told.change(A, 1)
    await told.publisher.wait_idle()
    told.publisher.say_again(A)
    await told.publisher.wait_idle()
    told.change(A, 1)
    await told.publisher.wait_idle()
    records = [record.envelope async for record in told.log.read(Query(topic=Topic.REPLICAS))]
    assert [(one.data.failures, one.epoch) for one in records] == [(1, 7), (1, 7)]
    running.cancel()


async def test_log_is_away_for_a_while() -> None:
    """While the log cannot be written nothing is lost but the states in between, and tries have growing pauses."""
    told = Told()
    told.log.down = True
    running = asyncio.create_task(told.publisher.run())
    told.change(A, 1)
    for _ in range(100):
        await told.clock.advance(1.0)
    assert 15 < told.publisher.failed_appends < 30
    told.change(A, 2)
    told.change(B, 3)
    told.log.down = False
    await told.clock.advance(5.0)
    assert sorted(await told.seen()) == [("a", 2), ("b", 3)]
    running.cancel()


class Slow(Faulty):
    """A log that has what it is given at once, and says so, or that it failed, when it is told to."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock)
        self.flights: list[asyncio.Future[None]] = []

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        self.flights.append(asyncio.get_running_loop().create_future())
        written, flight = await super().append(events), self.flights[-1]
        await flight
        return written


async def slowly() -> tuple[Told, Slow, asyncio.Task[None]]:
    """A publisher on a slow log, which has been told of three changes one after the other."""
    told = Told()
    told.log = slow = Slow(told.clock)
    told.publisher = Publisher(slow, told.writer, told.clock, told.make)
    running = asyncio.create_task(told.publisher.run())
    for number in (1, 2, 3):
        told.change(A, number)
        await settle()
    return told, slow, running


async def test_a_state_does_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    """A few are under way at a time, in order; what changes beyond that becomes one record."""
    told, slow, running = await slowly()
    for number in (4, 5, 6):
        told.change(A, number)
        await settle()
    assert await told.seen() == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    for flight in list(slow.flights):
        flight.set_result(None)
        await settle()
    assert (await told.seen())[4:] == [("a", 6)]
    slow.flights[-1].set_result(None)
    await told.publisher.wait_idle()
    running.cancel()


async def test_who_waits_for_a_record_is_not_told_before_it_is_acknowledged() -> None:
    """Though its state has been handed over already, by an append that may still fail."""
    told, slow, running = await slowly()
    waits = asyncio.create_task(told.publisher.record(A))
    await settle()
    for flight in slow.flights[:3]:
        flight.set_exception(LogUnavailable("gone"))
    await settle()
    assert not waits.done()
    slow.flights[3].set_result(None)
    await asyncio.wait_for(waits, 10)
    running.cancel()


async def test_an_append_that_fails_is_made_up_for_with_the_newest_state() -> None:
    """Also when a later one was acknowledged; then one at a time, until the log takes one."""
    told, slow, running = await slowly()
    slow.flights[0].set_exception(LogUnavailable("gone"))
    for flight in slow.flights[1:]:
        flight.set_result(None)
    await settle()
    await told.clock.advance(5.0)
    assert (await told.seen())[3:] == [("a", 3)]
    slow.flights[3].set_result(None)
    await told.publisher.wait_idle()
    assert told.publisher.failed_appends == 1
    running.cancel()


def test_news_may_be_dropped() -> None:
    """News that the log does not take is counted, and nobody waits."""
    told = Told()
    told.publisher.news(ReplicaMetrics(model="a", replica="a-r1-0", revision=1))
    told.log.down = True
    told.publisher.news(ReplicaMetrics(model="a", replica="a-r1-0", revision=1))
    assert told.publisher.dropped_news == 1


async def rung(alarms: Alarms) -> tuple[list[ModelName], asyncio.Task[None]]:
    """The models for which it has rung, and the task that listens."""
    heard: list[ModelName] = []

    async def listen() -> None:
        async for name in alarms.rings():
            heard.append(name)  # noqa: PERF401 - the list is watched while it grows

    task = asyncio.create_task(listen())
    await settle()
    return heard, task


async def test_alarms_ring_in_time() -> None:
    """Each model's newest instant counts; earlier ones that come later wake in time; none means none."""
    clock = SimulatedClock(0.0)
    alarms = Alarms(clock)
    heard, task = await rung(alarms)
    for name, at in ((A, 10.0), (B, 20.0), (C, 5.0), (A, 12.0), (C, None), (B, 3.0)):
        alarms.set(name, None if at is None else Instant(at))
    await clock.advance(2.9)
    assert heard == []
    await clock.advance(0.2)
    assert heard == [B]
    await clock.advance(7.0)
    assert heard == [B]
    await clock.advance(2.0)
    assert heard == [B, A]
    task.cancel()


async def test_alarms_stay_small() -> None:
    """Instants that are replaced over and over do not pile up."""
    alarms = Alarms(SimulatedClock(0.0))
    for number in range(10_000):
        alarms.set(A, Instant(1000.0 + number % 7))
    assert len(alarms._heap) < 100


async def test_places() -> None:
    """Starts wait for a place in order; a place is given back once, by its holder or at its bound."""
    clock = SimulatedClock(0.0)
    places = Places(1, Seconds(10.0), clock)
    first = await places.take()
    assert places.full
    second = asyncio.create_task(places.take())
    await clock.advance(9.9)
    assert not second.done()
    await clock.advance(0.2)
    assert second.done()
    first.give_back()  # too late: it has no place any more
    assert places.full
    second.result().give_back()
    second.result().give_back()
    assert not places.full
    await places.take()
    assert places.full


async def test_a_state_that_cannot_be_written_hinders_no_other() -> None:
    """A state that no log takes (too large) is counted and left out; the states taken with it are written."""
    told = Told()
    told.log.refused = "model/a"
    running = asyncio.create_task(told.publisher.run())
    told.publisher.mark(A)
    told.publisher.mark(B)
    await asyncio.wait_for(told.publisher.wait_idle(), 10)
    assert await told.seen() == [(B, 0)]
    assert told.publisher.failed_appends == 1
    assert not running.done()
    running.cancel()
