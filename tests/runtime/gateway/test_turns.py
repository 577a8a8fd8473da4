"""Turns of the event loop: a burst is begun in portions and in order, and nothing else has to wait for all of it."""

from __future__ import annotations

import asyncio

from runtime.gateway.turns import MOST, Turns


class Arrival:
    """A connection that has bytes of a request; it writes down when it began."""

    def __init__(self, turns: Turns, began: list[Arrival]) -> None:
        self._began = began
        if turns.may_begin(self):
            self.begin()

    def begin(self) -> None:
        self._began.append(self)


async def test_few_begin_at_once() -> None:
    """What is no burst waits for nothing."""
    began: list[Arrival] = []
    turns = Turns(asyncio.get_running_loop())
    arrivals = [Arrival(turns, began) for _ in range(MOST)]
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
    late = [Arrival(turns, began) for _ in range(MOST)]
    assert began[before:] == late
