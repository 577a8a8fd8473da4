"""Several autoscalers on one log in memory, on a simulated clock: members join, leave, freeze and come back as zombies
that write late, all drawn from one seed; and what must hold at every moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.loop import Autoscaler
from autoscaler.owning import GROUP
from autoscaler.settings import AutoscalerSettings
from events.adapters.memory import MemoryEventLog
from events.adapters.subscription import LocalSubscription
from events.envelope import AnyEnvelope
from events.fence import Owners
from events.log import Batch, Position, Query, Record, Start, Subscription
from events.names import Topic
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.requests import Levels
from events.units import Instant
from events.writer import EventWriter
from tests.support.autoscaling import declared, observed, window
from tests.support.simulated_time import LoopClock

PARTITIONS = 4


class Breach(AssertionError):
    """Something that must hold does not."""


@dataclass
class MemberLog:
    """The log as one member sees it. While `frozen` nothing reaches it and nothing that it writes gets through; what it
    was writing then is written when it goes on: late."""

    under: MemoryEventLog
    clock: LoopClock
    drawn: random.Random
    delay: float
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    group: LocalSubscription | None = None

    def __post_init__(self) -> None:
        self.thawed.set()

    async def pass_through(self) -> None:
        """The time that a message takes, and as long as the member is frozen."""
        await self.clock.sleep_until(Instant(self.clock.now() + self.drawn.random() * self.delay))
        await self.thawed.wait()

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        await self.pass_through()
        return await self.under.append(events)

    def offer(self, envelope: AnyEnvelope) -> bool:
        return self.under.offer(envelope)

    async def read(self, query: Query) -> AsyncIterator[Record]:
        await self.pass_through()
        async for record in self.under.read(query):
            yield record

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        made = self.under.subscribe(topics, start, group)
        assert isinstance(made, LocalSubscription)
        if group is not None:
            self.group = made
        return _Through(self, made)

    async def lag(self, group: str) -> Mapping[tuple[str, int], int]:
        return await self.under.lag(group)


class _Through:
    """A subscription that delivers late."""

    def __init__(self, log: MemberLog, under: LocalSubscription) -> None:
        self._log, self._under = log, under
        self._dropped: set[int] = set()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await anext(aiter(self._under))
        await self._log.pass_through()
        kept = tuple(one for one in batch.records if one.position.partition not in self._dropped)
        return Batch(kept, batch.assigned, batch.revoked, batch.caught_up)

    def add(self, start: Start) -> None:
        self._dropped -= set(start.partitions or ())
        self._under.add(start)

    def drop(self, partitions: Collection[int]) -> None:
        self._dropped |= set(partitions)
        self._under.drop(partitions)

    async def commit(self, positions: Sequence[Position]) -> None:
        await self._under.commit(positions)

    async def close(self) -> None:
        await self._under.close()


class GroupMember:
    """One autoscaler."""

    def __init__(self, world: GroupWorld, number: int) -> None:
        self.owner = f"member-{number}"
        drawn = random.Random(f"{world.seed}/{number}")
        self.log = MemberLog(world.log, world.clock, drawn, world.delay)
        writer = EventWriter(f"relume/{self.owner}", world.clock, world.ids(self.owner))
        settings = AutoscalerSettings(owner=self.owner)
        self.autoscaler = Autoscaler(self.log, world.clock, writer, settings)
        self.frozen = self.started = False
        self._world = world

    async def leave(self) -> None:
        """In order, or (frozen) as a process that dies."""
        self.log.thawed.set()
        await self.autoscaler.close()

    def freeze(self, evicted: bool) -> None:
        """It stands still. `evicted`: for so long that the group deals its partitions to others."""
        self.frozen = True
        self.log.thawed.clear()
        hub, mine = self._world.log._hub, self.log.group
        if evicted and mine is not None and mine in hub._groups.get(GROUP, []):
            hub._groups[GROUP].remove(mine)
            if hub._groups[GROUP]:
                hub._deal(GROUP)

    async def thaw(self, heard_late: float) -> None:
        """It goes on: it writes what it was writing, and believes in its old share until it hears of the group."""
        self.frozen = False
        self.log.thawed.set()
        await asyncio.sleep(heard_late)
        hub, mine = self._world.log._hub, self.log.group
        if mine is not None and not mine._closed and mine not in hub._groups.setdefault(GROUP, []):
            mine.revoke_all_but([])
            hub._groups[GROUP].append(mine)
            hub._deal(GROUP)


class GroupWorld:
    """Models with a load each, replicas that follow what counts, and the judge."""

    def __init__(self, seed: int, models: int, delay: float) -> None:
        self.seed, self.delay = seed, delay
        self.clock = LoopClock()
        self.log = MemoryEventLog(self.clock, PARTITIONS)
        self.drawn = random.Random(seed)
        self.load = {f"m{number}": 0 for number in range(models)}
        self.floor: dict[str, int] = {}
        """Wishes must not fall below these now."""
        self.members: list[GroupMember] = []
        self.wishes: dict[str, int] = {}
        self.refused = 0
        self._owners = Owners()
        self._owner: dict[int, tuple[int, str]] = {}
        self._count = 0
        self._told_at = self.clock.now()
        self._writers = {name: EventWriter(name, self.clock, self.ids(name)) for name in ("admin", "gw", "cluster")}
        self._tasks: list[asyncio.Task[None]] = []

    def ids(self, name: str):  # type: ignore[no-untyped-def]  # an id maker
        """The same in each run of a seed."""
        numbers = iter(range(1 << 60))
        return lambda: f"{name}-{next(numbers)}"

    async def begin(self) -> None:
        """Declare, tell, obey."""
        made = [declared(model, uid=model, keepAlive="10s", maxReplicas=50) for model in self.load]
        await self.log.append([self._writers["admin"].envelope(one) for one in made])
        self._tasks = [asyncio.create_task(self._tell()), asyncio.create_task(self._judge())]

    async def close(self) -> None:
        """End all."""
        for member in self.members:
            await member.leave()
        for task in self._tasks:
            task.cancel()
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.log.close()
        for error in done:
            if isinstance(error, Exception):
                raise error

    async def join(self) -> GroupMember:
        """One more."""
        self._count += 1
        member = GroupMember(self, self._count)
        self.members.append(member)
        await member.autoscaler.start()
        member.started = True
        return member

    async def _tell(self) -> None:
        """As a gateway does: each second, of each model that has requests, and once with zeros."""
        quiet: set[str] = set()
        while True:
            begun, now = self._told_at, self.clock.now()
            self._told_at = now
            self.log.offer(self._writers["gw"].envelope(GatewayBeat(gateway="g", boot="b")))
            for model, running in self.load.items():
                if running or model not in quiet:
                    told = window(begun, now, running, model=model, uid=model, now=Levels(running=running))
                    self.log.offer(self._writers["gw"].envelope(told))
                (quiet.discard if running else quiet.add)(model)
            await asyncio.sleep(1.0)

    async def _judge(self) -> None:
        """Every wish that counts is of the one owner; none falls below the floor."""
        async for batch in self.log.subscribe((Topic.DECISIONS,), Start("beginning")):
            for record in batch.records:
                self._weigh(record)

    def _weigh(self, record: Record) -> None:
        data, partition = record.envelope.data, record.position.partition
        admitted = self._owners.admits(record)
        self.refused = self._owners.refused
        if isinstance(data, OwnershipTaken):
            self._owner[partition] = (record.position.offset, data.owner)
        elif isinstance(data, WishDecided) and admitted:
            epoch, owner = self._owner[partition]
            if (record.envelope.epoch, record.envelope.source) != (epoch, f"relume/{owner}"):
                raise Breach(f"{record.envelope.source} decided {data.model}, which is {owner}'s since {epoch}")
            if data.replicas < self.floor.get(data.model, 0):
                raise Breach(f"{data.model} shrinks to {data.replicas} under a load for {self.floor[data.model]}")
            self.wishes[data.model] = data.replicas
            self.log.offer(self._writers["cluster"].envelope(observed(data.replicas, model=data.model, uid=data.uid)))

    def check_alive(self) -> None:
        """Nobody has failed."""
        for task in (*self._tasks, *(task for one in self.members for task in one.autoscaler._tasks)):
            if task.done():
                raise Breach("a part has ended") from task.exception()
