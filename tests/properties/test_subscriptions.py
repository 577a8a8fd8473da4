"""Subscriptions under random interleavings of appends, reads of the store, rebalances and cancelled waits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from events.adapters.hub import Hub
from events.adapters.memory import MemoryEventLog
from events.adapters.store import Chunk, Place, Store
from events.clock import SimulatedClock
from events.log import Record, Start, Subscription
from events.names import Topic
from tests.support.events import Teller

GATEWAYS = str(Topic.GATEWAYS)
SEEDS = settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""A smaller seed is no simpler case, so nothing is shrunk."""


class LateHub(Hub):
    """A hub that is told of records some turns after they can be read, as from another thread; in order."""

    def __init__(self, store: Store, partitions: int, buffer: int, chance: random.Random) -> None:
        super().__init__(store, partitions, buffer)
        self._chance = chance
        self._late: deque[Sequence[Record]] = deque()

    def publish(self, records: Sequence[Record]) -> None:
        self._late.append(records)
        self._after(self._chance.randrange(6))

    def _after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._after, turns - 1)
        else:
            super().publish(self._late.popleft())


class SlowLog(MemoryEventLog):
    """A log whose reads take a random number of turns of the loop, before and after they look."""

    def __init__(self, clock: SimulatedClock, partitions: int, chance: random.Random) -> None:
        super().__init__(clock, partitions)
        self._hub = LateHub(self, partitions, chance.choice((1, 3, 1000)), chance)
        self._chance = chance

    async def _dawdle(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def follow(self, place: Place, offset: int, limit: int) -> Chunk:
        await self._dawdle()
        chunk = await super().follow(place, offset, self._chance.choice((1, 2, limit)))
        await self._dawdle()
        return chunk

    async def newest(self, place: Place, offset: int, limit: int) -> Chunk:
        await self._dawdle()
        chunk = await super().newest(place, offset, self._chance.choice((1, 2, limit)))
        await self._dawdle()
        return chunk


async def write(log: MemoryEventLog, chance: random.Random, count: int) -> None:
    """Appends of one to four events with pauses of a few turns."""
    tell = Teller(source=f"relume/{chance.random()}")
    while count:
        size = min(count, chance.randint(1, 4))
        events = [tell.beat(f"g{chance.randrange(6)}", str(chance.random())) for _ in range(size)]
        count -= len(events)
        await log.append(events)
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds; fails when it does not within 10,000 turns."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing more happens, and it does not hold")


def by_partition(records: list[Record]) -> dict[int, list[int]]:
    """Offsets by partition, in the order of delivery."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.position.partition, []).append(record.position.offset)
    return found


@SEEDS
@given(st.integers(0, 1 << 32))
def test_a_follower_sees_everything_once_and_in_order(seed: int) -> None:
    """From the beginning, under concurrent appends and cancelled waits: no loss, no repetition, order kept."""

    async def scenario() -> None:
        chance = random.Random(seed)
        log = SlowLog(SimulatedClock(), chance.choice((1, 3)), chance)
        await write(log, chance, 20)
        subscription = log.subscribe([GATEWAYS], Start("beginning"))
        writing = asyncio.create_task(write(log, chance, 60))
        records: list[Record] = []

        async def follow() -> None:
            while len(records) < 80:
                waiting = asyncio.ensure_future(anext(aiter(subscription)))
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
                    if not waiting.done():
                        waiting.cancel()
                found = (await asyncio.gather(waiting, return_exceptions=True))[0]
                if not isinstance(found, BaseException):
                    records.extend(found.records)

        following = asyncio.create_task(follow())
        await writing
        await turns_until(following.done)
        await following
        for offsets in by_partition(records).values():
            assert offsets == list(range(len(offsets)))

    asyncio.run(scenario())


@SEEDS
@given(st.integers(0, 1 << 32))
def test_a_follower_of_states_ends_with_the_newest_values(seed: int) -> None:
    """Newest of each key, then all that follows: whatever is folded ends as the log's own newest values."""

    async def scenario() -> None:
        chance = random.Random(seed)
        log = SlowLog(SimulatedClock(), chance.choice((1, 3)), chance)
        await write(log, chance, 30)
        writing = asyncio.create_task(write(log, chance, 40))
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        subscription = log.subscribe([GATEWAYS], Start("newest_per_key"))
        records: list[Record] = []

        async def follow() -> None:
            async for batch in subscription:
                records.extend(batch.records)

        following = asyncio.create_task(follow())
        await writing
        await turns_until(lambda: not _behind(log, records))
        await subscription.close()
        await following
        folded = {record.envelope.key: record.envelope for record in records}
        assert folded == {record.envelope.key: record.envelope for record in _newest(log)}
        for offsets in by_partition(records).values():
            assert offsets == sorted(set(offsets))

    asyncio.run(scenario())


def _newest(log: SlowLog) -> list[Record]:
    return [record for place in sorted(log._partitions) for record in log._partitions[place].newest.values()]


def _behind(log: SlowLog, records: list[Record]) -> list[Record]:
    seen = {record.position for record in records}
    return [record for record in _newest(log) if record.position not in seen]


@SEEDS
@given(st.integers(0, 1 << 32))
def test_a_group_with_changing_members_loses_nothing(seed: int) -> None:
    """Members join, commit after effect, and leave; every record has its effect at least once."""

    async def scenario() -> None:
        chance = random.Random(seed)
        log = SlowLog(SimulatedClock(), 4, chance)
        effects: Counter[str] = Counter()

        async def member(subscription: Subscription, batches: int) -> None:
            async for batch in subscription:
                effects.update(record.envelope.id + record.envelope.source for record in batch.records)
                await subscription.commit([record.position for record in batch.records])
                batches -= 1
                if batches == 0:
                    break
            await subscription.close()

        writing = asyncio.create_task(write(log, chance, 100))
        members = []
        for _ in range(6):
            subscription = log.subscribe([GATEWAYS], Start("beginning"), "workers")
            members.append(asyncio.create_task(member(subscription, chance.randint(1, 6))))
            for _ in range(chance.randrange(15)):
                await asyncio.sleep(0)
        await writing
        last = log.subscribe([GATEWAYS], Start("beginning"), "workers")
        members.append(asyncio.create_task(member(last, -1)))
        await turns_until(lambda: len(effects) == 100)
        await log.close()
        await asyncio.gather(*members, return_exceptions=True)

    asyncio.run(scenario())
