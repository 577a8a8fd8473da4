"""Turns of the event loop: a burst is begun in portions and in order, and nothing else has to wait for all of it.

Where a request has woken a model, what leads to its start goes before the rest of a burst.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from events.units import Instant
from runtime.gateway import turns as module
from runtime.gateway.turns import MOST, WAY_BEGINS, Turns
from tests.support.waiting import until

NOW = Instant(1000.0)
LATER = Instant(1001.0)


class Arrival:
    """A connection that has bytes of a request; it writes down when it began."""

    def __init__(self, turns: Turns, began: list[Arrival], now: Instant = NOW) -> None:
        self._began = began
        self.at_once = turns.may_begin(self, now)
        if self.at_once:
            self.begin()

    def begin(self) -> None:
        self._began.append(self)


async def test_few_begin_at_once() -> None:
    """What is no burst waits for nothing."""
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    arrivals = [Arrival(turns, began) for _ in range(MOST)]
    assert began == arrivals
    arrivals += [Arrival(turns, began, LATER) for _ in range(MOST)]
    assert began == arrivals


async def test_a_burst_goes_in_portions_and_in_order() -> None:
    """Each turn begins its portion; whoever comes meanwhile is behind those who wait."""
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    arrivals = [Arrival(turns, began) for _ in range(3 * MOST)]
    assert len(began) == MOST
    await asyncio.sleep(0)
    assert len(began) == 2 * MOST
    arrivals.append(Arrival(turns, began))
    assert len(began) == 2 * MOST
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert began == arrivals


async def test_after_a_burst_all_is_as_before() -> None:
    """A turn without anybody waiting ends the portions."""
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    for _ in range(2 * MOST):
        Arrival(turns, began)
    for _ in range(4):
        await asyncio.sleep(0)
    before = len(began)
    late = [Arrival(turns, began, LATER) for _ in range(MOST)]
    assert began[before:] == late


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_way_is_made_for_a_start() -> None:
    """Of a burst a few begin, the others when the replica is starting; all of them in order."""
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    first = Arrival(turns, began)
    turns.make_way()
    burst = [Arrival(turns, began) for _ in range(3 * MOST)]
    await _turns(10)
    assert began == [first, *burst[:WAY_BEGINS]]
    turns.end_way()
    await _turns(10)
    assert began == [first, *burst]


async def test_a_turn_under_way_makes_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one of a portion wakes a model, no more than the few of its portion follow."""
    monkeypatch.setattr(module, "WAY_LASTS", 60.0)
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())

    class Waking(Arrival):
        def begin(self) -> None:
            super().begin()
            turns.make_way()

    arrivals = [Arrival(turns, began) for _ in range(MOST)]
    arrivals.append(Waking(turns, began))
    arrivals += [Arrival(turns, began) for _ in range(2 * MOST)]
    await _turns(10)
    assert began == arrivals[: MOST + 1 + WAY_BEGINS]
    turns.end_way()
    await _turns(10)
    assert began == arrivals


async def test_way_is_made_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that does not come holds nobody for longer than that."""
    monkeypatch.setattr(module, "WAY_LASTS", 0.001)
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    turns.make_way()
    burst = [Arrival(turns, began) for _ in range(2 * MOST)]
    await until(lambda: began == burst)


async def test_way_is_made_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that wake one after the other do not keep the others' requests waiting all the time."""
    monkeypatch.setattr(module, "WAY_RESTS", 0.05)
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    turns.make_way()
    turns.end_way()
    turns.make_way()
    rested = [Arrival(turns, began) for _ in range(MOST)]
    assert began == rested

    later = (Instant(LATER + seconds) for seconds in itertools.count())

    def made_again() -> bool:
        turns.make_way()
        now = next(later)
        return not all(Arrival(turns, [], now).at_once for _ in range(WAY_BEGINS + 1))

    await _turns(2)
    await until(made_again)
