"""Room that pods of enrolled objects have: for replicas of their model alone, and at that very place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.limits import Limit, LimitKind
from events.types.replicas import CardsObserved, OwnRoom
from events.units import Instant
from preemption.core.allocator import decide
from tests.support.pool import World, assert_not_overcommitted, needs, node

LAST = "n1-gpu-1"


def roomy(*rooms: OwnRoom, gpus: int = 2, name: str = "n1") -> CardsObserved:
    """A node some of whose cards pods of enrolled objects have."""
    return replace(node(name, gpus=gpus), rooms=rooms)


def room(model: str = "a", *cards: str, pod: str = "pod", **more: int) -> OwnRoom:
    """What a pod has."""
    return OwnRoom(model=model, pod=pod, gpus=cards, resources=needs(gpus=len(cards)), **more)


def places(world: World, model: str) -> list[tuple[str, ...]]:
    """The cards of a model's granted replicas."""
    return [one.placement.gpus for one in world.grants[model].replicas] if model in world.grants else []


def test_its_model_alone_gets_it() -> None:
    """Another one takes what is free, whatever its priority, and is short beyond that; its own gets that very place."""
    world = World(roomy(room("a", LAST)))
    world.declare("a", resources=needs(gpus=1))
    world.declare("b", resources=needs(gpus=1), priority=900)
    world.wish("b", 2)
    world.decide()
    assert places(world, "b") == [("n1-gpu-0",)]
    assert world.grants["b"].shortage is not None
    world.wish("a", 1)
    world.decide()
    assert places(world, "a") == [(LAST,)]
    assert_not_overcommitted(world)


def test_what_is_told_late_takes_nothing_back() -> None:
    """The node is told with the room that a replica has by now, and then without it: nothing changes. Once the replica
    is gone, what it had is free for all."""
    world = World(roomy(room("a", LAST)))
    world.declare("a", resources=needs(gpus=1))
    world.declare("b", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    for late in (roomy(room("a", LAST)), roomy()):
        world.set_node(late)
        assert world.decide().grants == ()
    world.obey("a")
    world.wish("b", 2)
    world.decide()
    assert (places(world, "a"), places(world, "b")) == ([(LAST,)], [("n1-gpu-0",)])
    world.wish("a", 0)
    world.decide()
    world.see("a")
    world.decide()
    assert sorted(places(world, "b")) == [("n1-gpu-0",), (LAST,)]


def test_one_that_goes_is_free_for_all() -> None:
    """Its pod has ended: who was short has its place."""
    world = World(roomy(room("a", LAST)))
    world.declare("b", resources=needs(gpus=2))
    world.wish("b", 1)
    world.decide()
    assert places(world, "b") == []
    world.set_node(roomy())
    world.decide()
    assert places(world, "b") == [("n1-gpu-0", LAST)]


def test_those_of_a_model_are_given_in_order() -> None:
    """The lowest ordinal first, on whichever node, then the oldest; and before anything that is free elsewhere."""
    first = roomy(room("a", LAST, pod="a-1", ordinal=1), room("a", "n1-gpu-0", pod="a-2", ordinal=2))
    second = roomy(room("a", "n2-gpu-0", pod="a-0", ordinal=0), name="n2", gpus=1)
    world = World(first, second, node("n3", gpus=8))
    world.declare("a", resources=needs(gpus=1))
    given = []
    for count in range(1, 5):
        world.wish("a", count)
        world.decide()
        given.append(world.grants["a"].replicas[-1].placement.gpus[0])
    assert given[:3] == ["n2-gpu-0", LAST, "n1-gpu-0"]
    assert given[3].startswith("n3-")


@pytest.mark.parametrize(("takes", "cards"), [
    pytest.param(needs(gpus=1), ("n1-gpu-0", LAST), id="more cards than it takes"),
    pytest.param(needs(gpus=1, cpu=64.0), (LAST,), id="fewer cores than it takes"),
])  # fmt: skip
def test_what_does_not_fit_is_not_given(takes: object, cards: tuple[str, ...]) -> None:
    """A pod of another shape than the replica that is declared: it has its place still."""
    world = World(replace(roomy(room("a", *cards)), cpu=63.0), node("n2", cpu=64.0))
    world.declare("a", resources=takes)
    world.wish("a", 1)
    world.decide()
    assert [one.placement.node for one in world.grants["a"].replicas] == ["n2"]
    world.declare("b", resources=needs(gpus=2))
    world.wish("b", 1)
    world.decide()
    assert places(world, "b") == []


def test_a_quota_has_counted_its_pod() -> None:
    """It leaves nothing, so nobody gets a new pod; who has one already is a replica all the same."""
    world = World(roomy(room("a", LAST)))
    quota = Limit(source="ResourceQuota gpus", resource="requests.nvidia.com/gpu", kind=LimitKind.GPUS, most=0.0)
    world.pool.set_limits((quota,))
    for model in "ab":
        world.declare(model, resources=needs(gpus=1))
        world.wish(model, 1)
    world.decide()
    assert (places(world, "a"), places(world, "b")) == ([(LAST,)], [])


def test_a_whole_snapshot_is_decided_the_same() -> None:
    """A new leader, to whom nodes are told before grants, grants what the one before it granted."""
    world = World(roomy(room("a", LAST)))
    world.declare("a", resources=needs(gpus=1))
    world.declare("b", resources=needs(gpus=1))
    world.wish("a", 1)
    world.wish("b", 2)
    world.decide()
    assert decide(world.snapshot(), world.policy, Instant(world.now)).grants == ()
    world.obey("a")
    world.obey("b")
    world.decide()
    assert decide(world.snapshot(), world.policy, Instant(world.now)).grants == ()
