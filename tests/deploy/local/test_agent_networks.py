"""What an agent takes the network for: measured by fetches that nothing held back, each place by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.cache.wanting import Wanted
from coldstart.core.budget import Tier
from deploy.local.agent import Agent, AgentSettings
from deploy.local.flight import Why
from events.clock import SystemClock
from tests.support.flaky_origin import Origin, served
from tests.support.weights_stage import CHUNK, QUICK, content

WITHIN = 20.0


async def opened(folder: Path) -> Agent:
    """An agent on a folder of its own; close it."""
    fetching = replace(QUICK, connections_most=2)
    agent = Agent(folder / "weights", AgentSettings(fetching=fetching), SystemClock())
    await agent.open()
    return agent


async def had(agent: Agent, url: str) -> float:
    """The least that the bytes of a start take, as it is told; its weights come from far away."""
    async with asyncio.timeout(WITHIN):
        one = await agent.have(Wanted(url), lambda _: None)
    one.end()
    assert one.tier is Tier.REMOTE
    assert one.least is not None
    return one.least


async def test_what_is_held_back_measures_nothing(tmp_path: Path) -> None:
    """Prewarming takes half of the network. If that were taken for the network, each would take half of the last."""
    agent = await opened(tmp_path)
    with served(Origin(content(20))) as origin:
        await had(agent, origin.url)
        measured = agent.networks.of(Wanted(origin.url))
        assert measured
        for number in range(3):
            flight = agent.fly(Wanted(f"{origin.url}?{number}"), Why.PREWARM)
            async with asyncio.timeout(WITHIN):
                await asyncio.wait({flight.done})
            assert flight.done.result().transferred == len(origin.content)
        assert agent.networks.of(Wanted(origin.url)) == measured == agent.speeds.network
    await agent.close()


async def test_what_is_over_in_one_answer_measures_nothing(tmp_path: Path) -> None:
    """A configuration of some bytes takes as long as its server takes to answer."""
    agent = await opened(tmp_path)
    with served(Origin(b"{}" * (CHUNK // 4))) as origin:
        async with asyncio.timeout(WITHIN):
            (await agent.have(Wanted(origin.url), lambda _: None)).end()
        assert agent.speeds.network is None
    await agent.close()


async def test_a_slow_place_says_nothing_of_a_quick_one(tmp_path: Path) -> None:
    """The least of a start goes by the place that its weights come from."""
    agent = await opened(tmp_path)
    with served(Origin(content(8))) as near, served(Origin(content(8, seed=7))) as far:
        far.rate = CHUNK / 0.4
        quick = await had(agent, near.url)
        await had(agent, far.url)
        slow = await had(agent, f"{far.url}?again")
        assert slow > 3 * quick
        assert await had(agent, f"{near.url}?again") == pytest.approx(quick, rel=0.9)
    await agent.close()
