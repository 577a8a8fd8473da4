"""The loop over the memory log on a simulated clock: edges, restarts, failures of the log, fencing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.core import decide as deciding
from autoscaler.core.model import Decision, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.loop import Autoscaler
from autoscaler.record import replay
from autoscaler.settings import AutoscalerSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.envelope import AnyEnvelope
from events.log import Batch, LogUnavailable, Position, Query, Record, Subscription
from events.names import Topic
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.requests import Levels
from events.units import Instant
from events.writer import EventWriter
from tests.support.autoscaling import T0, declared, observed, window


class Brittle(MemoryEventLog):
    """A log that cannot be written while `broken`."""

    broken = False
    refused = 0

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        if self.broken:
            self.refused += 1
            raise LogUnavailable("disk full")
        return await super().append(events)


class World:
    """A log, a clock, a gateway that tells, and autoscalers."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(T0)
        self.log = Brittle(self.clock)
        self.writers: dict[str, EventWriter] = {}
        self.boots = 0

    def tell(self, data: object, source: str = "relume/gateway/g") -> None:
        """An event is in the log."""
        writer = self.writers.setdefault(source, EventWriter(source, self.clock))
        assert self.log.offer(writer.envelope(data))

    def waits(self, waiting: int, running: int = 0, model: str = "m") -> None:
        """An edge: so many wait now."""
        now = self.clock.now()
        self.tell(window(now, now, model=model, now=Levels(waiting=waiting, running=running), edge=True))

    def idle(self, model: str = "m") -> None:
        """Zeros."""
        self.tell(window(self.clock.now(), self.clock.now(), model=model))

    @asynccontextmanager
    async def autoscaler(self, **settings: object) -> AsyncIterator[Autoscaler]:
        """A started autoscaler of its own process."""
        self.boots += 1
        owner = f"autoscaler-{self.boots}"
        writer = EventWriter(f"relume/{owner}", self.clock)
        made = Autoscaler(self.log, self.clock, writer, AutoscalerSettings(**{"owner": owner, **settings}))  # type: ignore[arg-type]  # test settings
        await made.start()
        await settle()
        try:
            yield made
        finally:
            await made.close()

    async def decisions(self) -> list[Record]:
        """Everything on `relume.decisions`."""
        return [record async for record in self.log.read(Query(Topic.DECISIONS))]

    async def wishes(self, model: str = "m") -> list[WishDecided]:
        """The wishes of a model, oldest first."""
        every = [record.envelope.data for record in await self.decisions()]
        return [data for data in every if isinstance(data, WishDecided) and data.model == model]

    async def numbers(self, model: str = "m") -> list[int]:
        """Their numbers."""
        return [wish.replicas for wish in await self.wishes(model)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world whose log is closed at the end."""
    made = World()
    async with made.log:
        yield made


async def test_from_zero_to_a_thousand_held(world: World) -> None:
    """One at the edge; all that the backlog needs in one step, before a tenth of a second has passed."""
    world.tell(declared(maxReplicas=300))
    async with world.autoscaler() as autoscaler:
        world.waits(1)
        await settle()
        assert await world.numbers() == [0, 1]
        for waiting in (2, 3, 5, 8, 12, 40, 200, 1000):
            await world.clock.advance(0.005)
            world.waits(waiting)
        await world.clock.advance(0.06)
        assert await world.numbers() == [0, 1, 250]
        assert world.clock.now() <= T0 + 0.1
        assert autoscaler.history_read


async def test_wishes_say_everything(world: World) -> None:
    """Epoch, cause, uid, revision, priority; and the decision can be taken again from the record."""
    world.tell(declared(revision=3))
    async with world.autoscaler():
        world.waits(5)
        await settle()
        owned, *_, last = await world.decisions()
        edge = await anext(world.log.read(Query(Topic.REQUESTS)))
        assert owned.envelope.key == "ownership/0"
        assert last.envelope.key == "model/m"
        assert last.envelope.epoch == owned.position.offset
        assert last.envelope.cause == edge.envelope.id
        wish = last.envelope.data
        assert (wish.uid, wish.revision, wish.priority, wish.replicas) == ("u", 3, 100, 2)
        assert (replay(wish).replicas, tuple(replay(wish).reasons)) == (wish.replicas, wish.reasons)


async def test_the_keep_alive_needs_no_event(world: World) -> None:
    """A quiet model is looked at when its keep-alive ends; a request 10 ms later wakes it again."""
    world.tell(declared(keepAlive="5s"))
    async with world.autoscaler():
        world.waits(1)
        await world.clock.advance(1)
        world.idle()
        await world.clock.advance(4.9)
        assert await world.numbers() == [0, 1]
        await world.clock.advance(0.2)
        assert await world.numbers() == [0, 1, 0]
        await world.clock.advance(0.01)
        world.waits(1)
        await settle()
        assert await world.numbers() == [0, 1, 0, 1]


async def test_a_restart_shrinks_nothing(world: World) -> None:
    """With the wish on record and the load in the log, a new process goes on where the old one was."""
    world.tell(declared(keepAlive="60s"))
    async with world.autoscaler():
        world.waits(20)
        await settle()
    world.tell(observed(5))
    for _ in range(30):
        await world.clock.advance(1)
        now = world.clock.now()
        world.tell(window(now - 1, now, running=20))
    async with world.autoscaler() as autoscaler:
        assert autoscaler.history_read
        report = autoscaler.view("m")
        assert report is not None
        assert report.snapshot.demand.panic == pytest.approx(20.0)
        await world.clock.advance(2)
        assert set(await world.numbers()) == {0, 5}
        world.idle()
        await world.clock.advance(59)
        assert (await world.numbers())[-1] >= 1
        await world.clock.advance(3)
        assert (await world.numbers())[-1] == 0


async def test_edges_act_while_history_is_unread(world: World) -> None:
    """Somebody waits before the past is read: the model is woken; what runs is left alone."""

    class Slow(Brittle):
        """A log whose past cannot be read yet."""

        async def read(self, query: Query) -> AsyncIterator[Record]:
            if query.topic == Topic.REQUESTS:
                raise LogUnavailable("reading the past fails")
            async for record in super().read(query):
                yield record

    world.log = Slow(world.clock)
    world.tell(declared("busy", minReplicas=0))
    world.tell(declared("asleep"))
    world.tell(observed(3, model="busy"))
    async with world.autoscaler() as autoscaler:
        world.waits(1, model="asleep")
        await settle()
        await world.clock.advance(100)
        assert not autoscaler.history_read
        assert (await world.numbers("asleep"))[:2] == [0, 1]
        assert set(await world.numbers("busy")) == {3}
        assert autoscaler.statistics().log_failures > 3


async def test_pauses_begin_anew_once_the_log_was_read(world: World) -> None:
    """Failures with something read between them do not add up to the longest pause."""

    class Fitful(Brittle):
        """A log whose states can be read, but not followed."""

        def subscribe(self, topics, start, group=None):  # type: ignore[no-untyped-def]  # as the port
            subscription = super().subscribe(topics, start, group)
            return BrokenOff(subscription) if start.at == "newest_per_key" else subscription

    world.log = Fitful(world.clock)
    world.tell(declared())
    async with world.autoscaler(retry_first=0.1, retry_most=5.0) as autoscaler:
        await world.clock.advance(2.05)
        assert autoscaler.statistics().log_failures == 21


class BrokenOff:
    """A subscription that breaks off once it has delivered what stands in the log."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def __aiter__(self) -> AsyncIterator[Batch]:
        async for batch in self._subscription:
            yield batch
            if batch.caught_up:
                raise LogUnavailable("broke off")

    async def close(self) -> None:
        await self._subscription.close()


async def test_recorded_before_it_counts(world: World) -> None:
    """While the log refuses, nothing is decided as if it had been written; then it is, once."""
    world.tell(declared())
    async with world.autoscaler(retry_first=0.1, retry_most=2.0) as autoscaler:
        world.log.broken = True
        world.waits(9)
        await settle()
        await world.clock.advance(10)
        report = autoscaler.view("m")
        assert report is not None
        assert report.wish is not None
        assert report.wish.replicas == 0
        assert 5 <= world.log.refused <= 12  # 0.1 + 0.2 + … s, then every 2 s
        world.log.broken = False
        world.waits(9)
        await world.clock.advance(2.1)
        assert await world.numbers() == [0, 3]


async def test_a_second_one_stands_by(world: World) -> None:
    """One partition has one owner: the second decides nothing, says that it is ready, and takes over at once."""
    world.tell(declared())
    async with world.autoscaler() as first:
        async with world.autoscaler() as second:
            world.waits(5)
            await world.clock.advance(0.1)
            assert (first.partitions, second.partitions) == ({0}, set())
            assert second.missing() == []
            assert second.view("m") is None
            await first.close()
            await world.clock.advance(0.1)
            assert second.partitions == {0}
            world.waits(9)
            await world.clock.advance(0.1)
        assert await epochs(world) == [None, 0, 0, None, 3]
        assert await world.numbers() == [0, 2, 3]


async def epochs(world: World) -> list[int | None]:
    """Of all that stands on `relume.decisions`; ownerships have none."""
    return [record.envelope.epoch for record in await world.decisions()]


async def test_who_lost_ownership_stops_and_takes_again(world: World) -> None:
    """Another one says that the partition is its: the first decides nothing and says so; a while later, since the group
    gives it the partition still, it takes it again."""
    world.tell(declared())
    async with world.autoscaler(retake_first=0.5) as first:
        world.tell(OwnershipTaken(partition=0, owner="other"), "relume/other")
        await world.clock.advance(0.1)
        world.waits(5)
        await world.clock.advance(0.1)
        assert not first.deciding
        assert first.partitions == set()
        assert first.missing() == ["the autoscaler does not decide: other has taken partition 0"]
        assert await epochs(world) == [None, 0, None]
        await world.clock.advance(0.6)
        world.waits(5)
        await world.clock.advance(0.1)
        assert first.deciding
        assert await epochs(world) == [None, 0, None, None, 3]
        assert (first.statistics().takeovers, first.statistics().losses) == (2, 1)
        assert await world.numbers() == [0, 2]


async def test_only_the_owner_measures(world: World) -> None:
    """The models whose signals are measured are those that are decided here; not while another one owns them, and not
    once they are deleted."""
    signals = [{"kafkaLag": {"topic": "orders", "group": "workers"}}]
    world.tell(declared(signals=signals))
    world.tell(declared("plain"))
    async with world.autoscaler(retake_first=0.5) as first:
        assert [model for model, _ in first.signalled()] == ["m"]
        world.tell(OwnershipTaken(partition=0, owner="other"), "relume/other")
        await world.clock.advance(0.1)
        assert list(first.signalled()) == []
        await world.clock.advance(0.6)
        assert [model for model, _ in first.signalled()] == ["m"]
        world.tell(declared(signals=signals, deleted=True))
        await world.clock.advance(0.1)
        assert list(first.signalled()) == []


async def test_two_that_believe_in_the_same_share_do_not_wear_each_other_out(world: World) -> None:
    """The pauses between retakes double, up to their bound."""
    world.tell(declared())
    async with world.autoscaler(retake_first=0.5, retake_most=5.0) as first:
        for _ in range(300):
            if first.partitions:
                world.tell(OwnershipTaken(partition=0, owner="other"), "relume/other")
            await world.clock.advance(0.1)
        assert 6 <= first.statistics().losses <= 10  # 0.5 + 1 + 2 + 4 + 5 + 5 + … s


async def test_ownership_lost_while_the_log_refuses(world: World) -> None:
    """What could not be recorded before another one took over is never recorded under the old epoch."""
    world.tell(declared())
    async with world.autoscaler():
        world.log.broken = True
        world.waits(9)
        await settle()
        await world.clock.advance(1)
        world.tell(OwnershipTaken(partition=0, owner="other"), "relume/other")
        world.log.broken = False
        await world.clock.advance(0.2)
        assert await world.numbers() == [0]
        await world.clock.advance(10)
        assert await epochs(world) == [None, 0, None, None, 3]


async def test_a_wish_that_hides_ours_is_covered(world: World) -> None:
    """A zombie's late wish is void and counted; ours is said again, so that who reads the newest values finds it."""
    world.tell(declared())
    async with world.autoscaler() as autoscaler:
        world.waits(9)
        await world.clock.advance(0.1)
        (*_, ours) = await world.wishes()
        world.tell(OwnershipTaken(partition=0, owner="zombie"), "relume/zombie")
        await settle()
        await world.clock.advance(1)
        await settle()
        assert autoscaler.partitions == {0}
        zombie = EventWriter("relume/zombie", world.clock)
        await world.log.append([zombie.envelope(replace(ours, replicas=0), epoch=0)])
        await world.clock.advance(0.1)
        assert (await world.wishes())[-1].replicas == 3
        assert autoscaler.statistics().refused_wishes == 1
        newest = [record async for record in world.log.read(Query(Topic.DECISIONS, newest_per_key=True))]
        assert [one.envelope.data.replicas for one in newest if isinstance(one.envelope.data, WishDecided)] == [3]


async def test_reasons_that_flicker_are_not_recorded_each_time(world: World) -> None:
    """At most one record each ten seconds that changes only the reasons."""
    world.tell(declared(maxReplicas=1))
    async with world.autoscaler():
        for second in range(60):
            world.waits(9 if second % 4 < 2 else 1)
            await world.clock.advance(1)
        times = [record.appended_at for record in (await world.decisions())[3:]]
        assert 2 <= len(times) <= 7
        assert all(after - before >= 9.9 for before, after in pairwise(times))


async def test_a_policy_that_fails_breaks_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its models keep their number and are still woken; other models are decided as ever."""

    def fails(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        raise ZeroDivisionError(f"in a policy, for {snapshot.model}")

    monkeypatch.setattr(deciding, "POLICIES", {**deciding.POLICIES, "broken": fails})
    world.tell(declared("bad", policy="broken"))
    world.tell(declared("odd", policy="unheard-of"))
    world.tell(declared("good"))
    async with world.autoscaler() as autoscaler:
        for model in ("bad", "odd", "good"):
            world.waits(9, model=model)
        await settle()
        assert await world.numbers("good") == [0, 3]
        assert await world.numbers("bad") == [0, 1]
        assert await world.numbers("odd") == [0, 1]
        assert (await world.wishes("bad"))[-1].reasons == ("PolicyFailed",)
        assert (await world.wishes("odd"))[-1].reasons == ("PolicyUnknown",)
        assert autoscaler.statistics().policy_failures >= 2


async def test_an_edge_among_many_active_models(world: World) -> None:
    """A thousand models with requests: their windows wait for the tick, an edge of another does not."""
    for number in range(1000):
        world.tell(declared(f"busy-{number}"))
    world.tell(declared("asleep"))
    async with world.autoscaler() as autoscaler:
        await world.clock.advance(0.01)
        for _ in range(2):
            for number in range(1000):
                world.waits(0, running=3, model=f"busy-{number}")
            await world.clock.advance(1)
        await settle(200)
        before = autoscaler.statistics().decided
        for number in range(1000):
            world.waits(0, running=2, model=f"busy-{number}")
        world.waits(1, model="asleep")
        await settle(60)
        assert await world.numbers("asleep") == [0, 1]
        assert autoscaler.statistics().decided - before < 300


async def test_a_deleted_model_is_forgotten(world: World) -> None:
    """Its last wish is zero; its name may be declared anew."""
    world.tell(declared(minReplicas=1))
    async with world.autoscaler() as autoscaler:
        world.tell(declared(minReplicas=1, deleted=True))
        await settle()
        assert await world.numbers() == [1, 0]
        assert autoscaler.view("m") is None
        world.tell(declared(uid="new", minReplicas=2))
        await settle()
        assert await world.numbers() == [1, 0, 2]


async def test_it_ends_with_the_log(world: World) -> None:
    """A closed log ends the tasks without an error."""
    world.tell(declared())
    async with world.autoscaler() as autoscaler:
        await world.log.close()
        await settle()
        world.clock.set(T0 + 1000)
        async with asyncio.timeout(10):
            await autoscaler.wait()


async def test_a_slow_commit_holds_up_no_other_model(world: World) -> None:
    """One wish is on its way into the log: its model waits for it and is then decided anew; another's edge does not."""
    gate = asyncio.Event()

    class Gated(Brittle):
        """A log whose commits for model m take long."""

        async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
            if any(event.key == "model/m" and event.data.replicas for event in events):
                await gate.wait()
            return await super().append(events)

    world.log = Gated(world.clock)
    world.tell(declared())
    world.tell(declared("other"))
    async with world.autoscaler():
        world.waits(1)
        await settle()
        world.waits(20)
        world.waits(9, model="other")
        await settle()
        assert await world.numbers() == [0]
        assert await world.numbers("other") == [0, 3]
        gate.set()
        await world.clock.advance(0.1)
        assert await world.numbers() == [0, 1, 5]


async def test_an_error_that_nobody_expected_ends_the_autoscaler(world: World) -> None:
    """It comes out of `wait`: whoever runs the process must know."""

    class Broken(Brittle):
        """A log with a bug."""

        async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
            if self.broken:
                raise ZeroDivisionError("a bug")
            return await super().append(events)

    world.log = Broken(world.clock)
    world.tell(declared())
    async with world.autoscaler() as autoscaler:
        world.log.broken = True
        world.waits(1)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await asyncio.wait_for(autoscaler.wait(), timeout=30)
