"""Leadership by a Lease: one at a time, whatever clocks and API servers do."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.lease import Lease, LeaseLost
from deploy.kubernetes.settings import KubernetesSettings
from events.clock import SimulatedClock, settle
from tests.support.kube_fake import OneObject


def lease(server: OneObject, clock: SimulatedClock, identity: str) -> Lease:
    """A process that wants the Lease."""
    return Lease(cast("KubeApi", server), clock, KubernetesSettings(identity=identity))


async def test_the_first_one_has_it_and_keeps_it_by_renewing() -> None:
    """It is had at once, held while it is renewed, and counted."""
    server, clock = OneObject(), SimulatedClock()
    first = lease(server, clock, "a")
    await first.acquire()
    running = asyncio.create_task(first.run())
    for _ in range(10):
        await clock.advance(2.0)
        assert first.held
    running.cancel()
    await clock.advance(12.0)
    assert not first.held


async def test_another_one_waits_for_its_whole_duration_by_its_own_clock() -> None:
    """A candidate whose clock is days ahead takes it no earlier: it counts from what it saw itself."""
    server, clock, ahead = OneObject(), SimulatedClock(), SimulatedClock(2_000_000_000.0)
    first, second = lease(server, clock, "a"), lease(server, ahead, "b")
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    await settle()
    for _ in range(7):  # 14 s
        await ahead.advance(2.0)
    assert not taking.done()
    for _ in range(2):
        await ahead.advance(2.0)
    await taking
    assert second.held
    assert second.transitions == 1


async def test_the_holder_stops_writing_before_another_may_begin() -> None:
    """Not renewed for four fifths of the duration it writes no more, and tells nobody that it leads."""
    server, clock = OneObject(), SimulatedClock()
    first = lease(server, clock, "a")
    await first.acquire()
    await clock.advance(11.9)
    assert first.held
    await clock.advance(0.2)
    assert not first.held


async def test_an_api_server_that_is_away_deposes_nobody() -> None:
    """Writes wait while it is away, however long, and go on when it is back."""
    server, clock = OneObject(), SimulatedClock()
    first = lease(server, clock, "a")
    await first.acquire()
    running = asyncio.create_task(first.run())
    server.away = True
    for _ in range(30):
        await clock.advance(2.0)
    writing = asyncio.create_task(first.hold())
    await settle()
    assert not writing.done()
    server.away = False
    await clock.advance(2.0)
    await asyncio.wait_for(writing, 1)
    assert first.held
    running.cancel()


async def test_a_lease_that_another_took_ends_the_first_one() -> None:
    """Who was stopped for long and finds another holder must write nothing more, also what already waits to be
    written."""
    server, clock = OneObject(), SimulatedClock()
    first, second = lease(server, clock, "a"), lease(server, clock, "b")
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    await settle()
    for _ in range(9):
        await clock.advance(2.0)
    await taking
    writing = asyncio.create_task(first.hold())
    running = asyncio.create_task(first.run())
    await settle()
    await clock.advance(2.0)
    with pytest.raises(LeaseLost, match="b has taken the lease"):
        await asyncio.wait_for(running, 1)
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(writing, 1)
    assert not first.held


async def test_a_lease_that_another_had_meanwhile_is_lost() -> None:
    """Who was stopped while another took it and gave it back has been deposed all the same."""
    server, clock = OneObject(), SimulatedClock()
    first, second = lease(server, clock, "a"), lease(server, clock, "b")
    await first.acquire()
    taking = asyncio.create_task(second.acquire())
    await settle()
    for _ in range(9):
        await clock.advance(2.0)
    await taking
    await second.release()
    running = asyncio.create_task(first.run())
    await settle()
    await clock.advance(2.0)
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, 1)


async def test_a_released_lease_is_taken_at_once() -> None:
    """Who ends in order keeps nobody waiting, and takes nothing away from its successor."""
    server, clock = OneObject(), SimulatedClock()
    first, second = lease(server, clock, "a"), lease(server, clock, "b")
    await first.acquire()
    await first.release()
    await second.acquire()
    assert second.held
    await first.release()
    assert server.object is not None
    assert server.object["spec"]["holderIdentity"] == "b"
