"""Replicas of an object that ends its last one first: who drains, who is taken back, who may go to others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.replicas import ReplicaState
from tests.preemption.test_standing import READY, running
from tests.support.pool import World

STARTING = ReplicaState.STARTING


def placed(replicas: int, *ordinals: int | None, states: dict[int, ReplicaState] | None = None) -> World:
    """Model `a` with so many replicas, the first of which stands at the first ordinal, and so on."""
    world = running(replicas, gpus=replicas + 2)
    order(world, *ordinals, states=states or {})
    return world


def order(world: World, *ordinals: int | None, states: dict[int, ReplicaState]) -> None:
    """Where its replicas stand, as their adapter tells it."""
    seen = world.observed["a"]
    told = tuple(
        replace(one, ordinal=ordinal, state=states.get(index, one.state))
        for index, (one, ordinal) in enumerate(zip(seen.replicas, ordinals, strict=True))
    )
    world.observed["a"] = replace(seen, replicas=told)
    world.pool.set_observed(world.observed["a"])


@pytest.mark.parametrize(
    ("ordinals", "states", "loads", "wanted", "goes"),
    [
        pytest.param((0, 1, 2), {}, (0, 9, 9), 2, [2], id="the last, however much it runs"),
        pytest.param((2, 1, 0), {}, (9, 0, 0), 2, [0], id="names say nothing"),
        pytest.param((0, 1, 2), {0: STARTING}, (0, 1, 1), 2, [2], id="also before one that is not ready"),
        pytest.param((0, None, 1), {1: STARTING}, (0, 0, 0), 2, [1], id="what has no pod yet goes before"),
        pytest.param((0, 1, 2), {}, (0, 0, 0), 1, [1, 2], id="two: the last two"),
        pytest.param((None, None, None), {}, (5, 0, 5), 2, [1], id="without an order the one that runs least"),
    ],
)
def test_who_drains(
    ordinals: tuple[int | None, ...], states: dict[int, ReplicaState], loads: tuple[int, ...], wanted: int,
    goes: list[int],
) -> None:  # fmt: skip
    """When fewer are wanted those drain that their object would end."""
    world = placed(3, *ordinals, states=states)
    for index, load in enumerate(loads):
        world.load("a", f"a-r1-{index}", load)
    world.wish("a", wanted)
    world.decide()
    assert sorted(world.draining("a")) == [f"a-r1-{index}" for index in goes]


def test_the_first_is_taken_back_before_the_last() -> None:
    """Of two that drain the one goes on that its object would end later."""
    world = placed(3, 2, 1, 0)
    world.wish("a", 1)
    world.decide()
    assert sorted(world.draining("a")) == ["a-r1-0", "a-r1-1"]
    world.wish("a", 2)
    world.decide()
    assert world.draining("a") == ["a-r1-0"]


def test_a_new_revision_takes_over_from_the_last_on() -> None:
    """Of the old ones the last goes first."""
    world = placed(2, 1, 0)
    world.load("a", "a-r1-0", 5)
    world.declare("a", revision=2)
    world.decide()
    world.see("a", ("a-r1-0", READY), ("a-r1-1", READY), ("a-r2-0", READY))
    order(world, 1, 0, 2, states={})
    world.decide()
    assert world.draining("a") == ["a-r1-0"]


def test_one_that_is_only_kept_goes_to_others_from_the_last_on() -> None:
    """The last has just come, so none goes: those before it could not go without it."""
    world = placed(3, 0, 1, 2)
    world.declare("b", resources=world.declared["a"].resources)
    world.wish("a", 3, kept=3)
    world.wish("b", 3, waits=True)
    world.decide(after=60)
    world.obey("b")
    assert world.draining("a") == ["a-r1-2"]
    world = placed(3, 0, 1, 2)
    seen = world.observed["a"].replicas
    fresh = (*seen[:2], replace(seen[2], created_at=world.now + 55, ready_at=world.now + 58))
    world.observed["a"] = replace(world.observed["a"], replicas=fresh)
    world.pool.set_observed(world.observed["a"])
    world.declare("b", resources=world.declared["a"].resources)
    world.wish("a", 3, kept=3)
    world.wish("b", 3, waits=True)
    world.decide(after=60)
    assert world.draining("a") == []
    world.decide(after=10)
    assert world.draining("a") == ["a-r1-2"]
