"""What the desk tells the data port ahead: whom to make way for, and where connections will be needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from events.clock import settle
from events.types.replicas import ReplicaState
from runtime.desk.desk import LEASES_A_TURN
from tests.support.desk import Asker, World, world
from tests.support.slots import observed, replica


class Recorder:
    """A front that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def make_way(self) -> None:
        self.told.append("make way")

    def end_way(self) -> None:
        self.told.append("end way")

    def expect(self, host: str, port: int, requests: int) -> None:
        self.told.append((host, port, requests))


def _watched(one: World) -> Recorder:
    front = Recorder()
    one.desk.serve(front)
    return front


async def test_way_is_made_until_the_replica_is_starting() -> None:
    """For the first that waits; not for a model that has a replica already."""
    async with world() as one:
        front = _watched(one)
        one.ask("r1")
        assert front.told == ["make way"]
        await one.observe(replica(state=ReplicaState.STARTING))
        assert front.told == ["make way", "end way"]
        for index in range(20):  # the backlog grows: edges again
            one.ask(f"more{index}")
        await one.observe(replica(state=ReplicaState.STARTING))
        assert front.told == ["make way", "end way"]


async def test_another_model_or_nothing_does_not_end_it() -> None:
    """A state without replicas is no start."""
    async with world() as one:
        front = _watched(one)
        one.ask("r1")
        await one.observe()
        assert front.told == ["make way"]


async def test_connections_are_announced_when_a_replica_listens() -> None:
    """As many as wait, within its slots but one; told again with each state until it is ready."""
    async with world() as one:
        front = _watched(one)
        for index in range(3):
            one.ask(f"r{index}")
        loading = replace(replica(state=ReplicaState.STARTING, slots=8), address="127.0.0.1:9000")
        await one.observe(loading)
        assert front.told[-1] == ("127.0.0.1", 9000, 3)
        one.ask("r3")
        await one.observe(loading)
        assert front.told[-1] == ("127.0.0.1", 9000, 4)
        told = len(front.told)
        await one.observe(replica(slots=8))
        assert len(front.told) == told


async def test_many_leases_are_told_in_portions_and_in_order() -> None:
    """Between two portions the loop does other things; who has left meanwhile gives its slot back."""
    async with world() as one:
        served: list[str] = []
        askers = [Asker(f"r{index}", served) for index in range(8 * LEASES_A_TURN)]
        for asker in askers:
            assert one.desk.take(one.wanted(asker.request), asker) is None
        await one.log.append([one.writer.envelope(observed(replica(slots=len(askers))))])
        seen: set[int] = set()
        async with asyncio.timeout(10):
            while len(served) < len(askers) - 1:
                seen.add(len(served))
                if len(served) == LEASES_A_TURN:
                    one.desk.leave(askers[-1].request)  # its lease is on its way to it
                await asyncio.sleep(0)
        await settle()
        assert served == [asker.request for asker in askers[:-1]]
        assert {LEASES_A_TURN, 3 * LEASES_A_TURN, 7 * LEASES_A_TURN} <= seen
        assert one.desk.running == len(askers) - 1
