"""A fetch of the agent that is told to end: at once, whatever its source does, and without leaving anything behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.cache import fetching
from coldstart.cache.wanting import Wanted
from coldstart.core.cache.policy import RoomPolicy
from deploy.local.agent import Agent, AgentSettings
from deploy.local.flight import Flight, Why, Yielded
from events.clock import SystemClock
from events.units import Bytes, Instant, Seconds
from tests.support.flaky_origin import Origin, served
from tests.support.weights_stage import CHUNK, QUICK, content

WITHIN = 20.0


@asynccontextmanager
async def opened(folder: Path, room: RoomPolicy | None = None, rate: float | None = None) -> AsyncIterator[Agent]:
    """An agent on a folder of its own."""
    settings = AgentSettings(
        fetching=replace(QUICK, stall=Seconds(60.0)), room=RoomPolicy() if room is None else room, prewarm_rate=rate
    )
    agent = Agent(folder / "weights", settings, SystemClock())
    await agent.open()
    try:
        yield agent
    finally:
        await agent.close()


@contextmanager
def growing(tried: threading.Event) -> Iterator[None]:
    """More connections are of use, however quick or busy the machine is; the event is set when they are tried."""
    judge = fetching.Connections.judge

    def watched(connections: fetching.Connections, capacity: float | None, hunger: float, now: Instant) -> None:
        del capacity, hunger
        judge(connections, None, 1.0, now)
        if connections.trial:
            tried.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching.Connections, "judge", watched)
        yield


async def ends(flight: Flight) -> None:
    """By being told so, and with its threads."""
    async with asyncio.timeout(WITHIN):
        await asyncio.wait({flight.done})
    assert isinstance(flight.done.exception(), Yielded)
    async with asyncio.timeout(WITHIN):
        while threads():  # noqa: ASYNC110 - the system ends them
            await asyncio.sleep(0.01)


def threads() -> list[str]:
    """Those of fetches."""
    return [one.name for one in threading.enumerate() if one.name.split("-")[0] == "weights"]


async def until(holds: threading.Event) -> None:
    assert await asyncio.to_thread(holds.wait, WITHIN)


async def test_where_one_fits_the_start_has_the_room_of_the_one_that_made_way(tmp_path: Path) -> None:
    """A prewarm's file takes its whole room from the first byte on: a start that ends it gets that room, is not refused
    and does not wait for a retry."""
    with served(Origin(content(40))) as ahead, served(Origin(content(40, seed=7))) as asked:
        async with opened(tmp_path, RoomPolicy(capacity=Bytes(60 * CHUNK)), rate=float(CHUNK)) as agent:
            first = threading.Event()
            ahead.faults = lambda _: first.set() or ""
            flight = agent.fly(Wanted(ahead.url), Why.PREWARM)
            await until(first)
            async with asyncio.timeout(WITHIN):
                had = await agent.have(Wanted(asked.url), lambda _: None)
            assert had.path.read_bytes() == asked.content
            had.end()
            await ends(flight)


async def test_a_source_that_sends_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """Long before its connections would be given up; and nothing but its file is left."""
    with served(Origin(content(40))) as origin:
        asked = threading.Event()
        origin.faults = lambda _: asked.set() or ""
        async with opened(tmp_path) as agent:
            origin.open_gate.clear()
            flight = agent.fly(Wanted(origin.url), Why.PREWARM)
            await until(asked)
            agent.stop(Wanted(origin.url))
            await ends(flight)
            assert agent.cache.running() == frozenset()
            assert agent.flying() == frozenset()


async def test_a_pause_that_the_source_asked_for_is_not_waited_for(tmp_path: Path) -> None:
    """It wants patience for most of a minute, in all its answers."""
    with served(Origin(content(40))) as origin:
        asked = threading.Event()

        def busy(number: int) -> str:
            if number == 1:  # both connections were refused
                asked.set()
            return "throttled-minute"

        origin.faults = busy
        async with opened(tmp_path) as agent:
            flight = agent.fly(Wanted(origin.url), Why.PREWARM)
            await until(asked)
            agent.stop(Wanted(origin.url))
            await ends(flight)


async def test_ended_in_the_middle_of_a_trial(tmp_path: Path) -> None:
    """Of more connections, over all of which something is asked for: no thread, no reservation; what was verified is
    not fetched again, and the content is right."""
    tried = threading.Event()
    with served(Origin(content(200))) as origin, growing(tried):
        origin.rate = CHUNK / 0.02
        async with opened(tmp_path) as agent:
            flight = agent.fly(Wanted(origin.url), Why.PREWARM)
            await until(tried)
            agent.stop(Wanted(origin.url))
            await ends(flight)
            assert agent.cache.running() == frozenset()
            verified = flight.pace.seen().done
            assert 0 < verified < len(origin.content)
            origin.rate, before = None, len(origin.starts)
            had = await agent.have(Wanted(origin.url), lambda _: None)
            assert had.path.read_bytes() == origin.content
            had.end()
            assert len(set(origin.starts[before:])) == 201 - verified // CHUNK
            assert list(agent.layout.partial.iterdir()) == []
