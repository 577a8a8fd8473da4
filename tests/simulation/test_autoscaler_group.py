"""Autoscalers that share the models, through storms of rebalances, with zombies: drawn from seeds."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.simulated_group import PARTITIONS, GroupWorld
from tests.support.simulated_time import simulate

MODELS = 10
MOST = 4
"""Members at a time."""


def needs(requests: int) -> int:
    """Replicas for so many requests, at a target of four."""
    return -(-requests // 4)


def levels(seed: int, phase: str) -> dict[str, int]:
    """How many requests each model has in a phase: one fewer than a multiple of four, so that averages which vary a
    little ask for the same."""
    drawn = random.Random(f"{seed}/{phase}")
    return {f"m{number}": max(0, 4 * drawn.randint(0, 8) - 1) for number in range(MODELS)}


async def settled(world: GroupWorld, within: float) -> None:
    """All wishes are what the load needs."""
    wrong: dict[str, tuple[int | None, int]] = {}
    for _ in range(round(2 * within)):
        wrong = {
            model: (world.wishes.get(model), needs(running))
            for model, running in world.load.items()
            if world.wishes.get(model) != needs(running)
        }
        if not wrong:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"wished and needed after {within} s: {wrong}")


async def storm(world: GroupWorld, seconds: float) -> None:
    """A member joins, leaves, or stands still and comes back, every second or so."""
    drawn, clock = world.drawn, world.clock
    end, waking = clock.now() + seconds, set[asyncio.Task[None]]()
    while clock.now() < end:
        await asyncio.sleep(drawn.uniform(0.1, 2.0))
        world.check_alive()
        awake = [one for one in world.members if one.started and not one.frozen]
        what = drawn.choice(("join", "leave", "freeze", "freeze", "thaw"))
        if what == "join" and len(world.members) < MOST:
            waking.add(asyncio.create_task(_join(world)))
        elif what == "leave" and len(world.members) > 1 and any(one.started for one in world.members):
            member = drawn.choice([one for one in world.members if one.started])
            world.members.remove(member)
            await member.leave()
        elif what == "freeze" and len(awake) > 1:
            drawn.choice(awake).freeze(evicted=drawn.random() < 0.7)
        elif what == "thaw" and any(one.frozen for one in world.members):
            member = drawn.choice([one for one in world.members if one.frozen])
            waking.add(asyncio.create_task(member.thaw(drawn.uniform(0.0, 2.0))))
    for member in world.members:
        if member.frozen:
            waking.add(asyncio.create_task(member.thaw(0.5)))
    await asyncio.gather(*waking)


async def _join(world: GroupWorld) -> None:
    await world.join()


async def story(seed: int, *, alone: bool) -> tuple[dict[str, int], int]:
    """A steady load, a storm under it, another load; what is wished at the end, and how many wishes were refused."""
    world = GroupWorld(seed, MODELS, delay=0.1)
    try:
        world.load = levels(seed, "steady")
        await world.begin()
        await world.join()
        await settled(world, 60)
        world.floor = {model: needs(running) for model, running in world.load.items()}
        if alone:
            await asyncio.sleep(40)
        else:
            await storm(world, 40)
        await asyncio.sleep(15)
        world.check_alive()
        owned = [partition for member in world.members for partition in member.autoscaler.partitions]
        assert sorted(owned) == list(range(PARTITIONS)), f"each partition has one owner: {owned}"
        world.floor = {}
        world.load = levels(seed, "rising")
        await settled(world, 200)
        world.load = levels(seed, "end")
        await asyncio.sleep(300)
        world.check_alive()
        return dict(world.wishes), world.refused
    finally:
        await world.close()


SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 4 else []) for seed in range(24)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_changes_no_decision(seed: int) -> None:
    """At most one writer of a partition counts at any moment, nothing shrinks for lack of history, nothing stays
    without an owner; and in the end all is wished as one autoscaler alone would."""
    shared, _ = simulate(lambda: story(seed, alone=False))
    single, _ = simulate(lambda: story(seed, alone=True))
    assert shared == single


def test_storms_have_zombies() -> None:
    """The seeds above are worth something: late wishes were written, and refused."""
    assert sum(simulate(lambda seed=seed: story(seed, alone=False))[1] for seed in range(5)) > 0
