"""Following a log: from its newest values on, through its failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.following import Follower
from events.log import Batch, LogUnavailable, Position, Start
from events.names import Topic


async def test_following_survives_the_log() -> None:
    """When the log cannot be read it is read again from its newest values, a second later."""

    class Broken:
        """A subscription that delivers one batch and fails, or ends."""

        def __init__(self, fails: bool) -> None:
            self.fails = fails
            self.closed = False

        async def batches(self) -> AsyncIterator[Batch]:
            yield Batch(records=(), caught_up=True)
            if self.fails:
                raise LogUnavailable("away")

        def __aiter__(self) -> AsyncIterator[Batch]:
            return self.batches()

        async def commit(self, positions: Iterable[Position]) -> None:
            raise AssertionError

        async def close(self) -> None:
            self.closed = True

    subscriptions = [Broken(True), Broken(True), Broken(False)]
    given = iter(subscriptions)
    clock = SimulatedClock()
    log = MemoryEventLog(clock)
    log.subscribe = lambda *_: next(given)  # type: ignore[assignment,method-assign,misc]  # the log under test fails
    batches: list[Batch] = []
    follower = Follower(log, clock, [Topic.GRANTS], Start(at="newest_per_key"), batches.append)
    task = asyncio.create_task(follower.run())
    await settle()
    await clock.advance(1.0)
    assert len(batches) == 2
    await clock.advance(1.0)
    await asyncio.wait_for(task, 1.0)
    assert len(batches) == 3
    assert follower.interruptions == 2
    assert all(subscription.closed for subscription in subscriptions)


async def test_following_ends_with_the_log() -> None:
    """A log that is closed, before or while it is followed, ends it without an error."""
    log = MemoryEventLog(SimulatedClock())
    follower = Follower(log, SimulatedClock(), [Topic.GRANTS], Start(at="newest_per_key"), lambda _: None)
    task = asyncio.create_task(follower.run())
    await asyncio.wait_for(follower.caught_up.wait(), 5.0)
    await log.close()
    await asyncio.wait_for(task, 5.0)
    await follower.run()


async def test_what_the_follower_raises_comes_out() -> None:
    """A bug of who takes the batches is not taken for a failure of the log."""

    def fail(_: Batch) -> None:
        raise RuntimeError("a bug")

    async with MemoryEventLog(SimulatedClock()) as log:
        with pytest.raises(RuntimeError, match="a bug"):
            await Follower(log, SimulatedClock(), [Topic.GRANTS], Start(at="newest_per_key"), fail).run()
