"""A model with a cold-start cost in the whole simulated world: real windows, wishes, grants, starts."""

from __future__ import annotations

import asyncio

from autoscaler.core.model import Reason
from tests.simulation.test_stories import served, told
from tests.support.simulated_world import World

PERIOD = 5 * 60.0
ROUNDS = 20


def test_a_rhythm_is_met_by_a_warm_replica_and_paid_for_in_its_minute() -> None:
    """Asked each five minutes: at first a start each time; once the rhythm is learned a replica is ready before the
    request, because of the forecast, and between two rounds there is none."""

    async def story(made: World) -> None:
        scaling = {"maxReplicas": 4, "coldStartCost": "5m", "stableWindow": "10s", "panicWindow": "2s"}
        await made.apply("m", slots=2, resources={"cpu": 1, "memory": "1Gi", "gpus": 0}, scaling=scaling)
        await asyncio.sleep(30.0)
        warm, between, why = [], [], []
        for _ in range(ROUNDS):
            warm.append(any(engine.ready for engine in made.machine.engines.values()))
            why.append(made.ledger.wishes["m"].reasons)
            began = made.clock.now()
            await served(made)
            await asyncio.sleep(PERIOD / 2 - (made.clock.now() - began))
            between.append(len(made.machine.engines))
            await asyncio.sleep(PERIOD - (made.clock.now() - began))
        assert not warm[0]
        assert warm[-6:] == [True] * 6, warm
        assert between[-6:] == [0] * 6, between
        assert all(Reason.FORECAST in reasons for reasons in why[-6:]), why

    told(story)
