"""Replicas that sleep: what they hold, and when they are woken instead of started anew."""

from __future__ import annotations

from events.types.replicas import ReplicaState
from preemption.core.view import Reason
from tests.support.pool import World, assert_not_overcommitted, needs, node

S = ReplicaState


def asleep(world: World, model: str = "a") -> None:
    """Its one replica drains and falls asleep."""
    world.wish(model, 1)
    world.decide()
    world.obey(model)
    world.wish(model, 0)
    world.decide()
    world.see(model, (f"{model}-r1-0", S.SLEEPING))
    world.decide()


def one_card() -> World:
    """Two models that want the same card."""
    world = World(node(gpus=1))
    for model in ("a", "b"):
        world.declare(model, resources=needs(gpus=1))
    return world


def test_a_sleeper_holds_no_card() -> None:
    """Its card goes to another model while it sleeps; it stays named, and nothing says that it drains."""
    world = one_card()
    asleep(world)
    world.wish("b", 1)
    world.decide()
    assert world.live("b") == ["b-r1-0"]
    assert world.draining("a") == ["a-r1-0"]
    assert Reason.DRAINS not in world.grants["a"].reasons
    assert_not_overcommitted(world)


def test_it_is_woken_on_its_own_card() -> None:
    """Wished for again while its card is free, the same replica is granted, at the same place."""
    world = one_card()
    asleep(world)
    world.wish("a", 1)
    (grant,) = world.decide().grants
    assert [(one.replica, one.drain) for one in grant.replicas] == [("a-r1-0", False)]
    assert Reason.WAKES in grant.reasons
    assert world.pool.ledger.holdings["a-r1-0"].placement.gpus == ("n1-gpu-0",)


def test_no_card_is_sold_twice() -> None:
    """Its card is another's now: it is not woken, and the model is short; once the card is free it is."""
    world = one_card()
    asleep(world)
    world.wish("b", 1)
    world.decide()
    world.obey("b")
    world.wish("a", 1)
    world.decide()
    assert world.live("a") == []
    assert world.grants["a"].shortage is not None
    assert_not_overcommitted(world)
    world.wish("b", 0)
    world.decide()
    world.see("b")
    world.decide()
    assert world.live("a") == ["a-r1-0"]
    assert_not_overcommitted(world)


def test_elsewhere_it_is_a_cold_start() -> None:
    """Its own card is taken and another one is free: a new replica starts there, and the sleeper sleeps on."""
    world = World(node(gpus=2))
    for model in ("a", "b"):
        world.declare(model, resources=needs(gpus=1))
    asleep(world)
    world.wish("b", 1)
    world.decide()
    held = world.pool.ledger.holdings["b-r1-0"].placement.gpus
    world.wish("a", 1)
    world.decide()
    expected = ["a-r1-1"] if held == ("n1-gpu-0",) else ["a-r1-0"]
    assert world.live("a") == expected
    assert_not_overcommitted(world)


def test_the_more_important_model_goes_first() -> None:
    """A sleeper is not woken into a card that a model of higher priority waits for."""
    world = World(node(gpus=2))
    world.declare("a", resources=needs(gpus=1))
    world.declare("b", resources=needs(gpus=2), priority=200)
    asleep(world)
    world.declare("c", resources=needs(gpus=1))
    world.wish("c", 1)
    world.decide()
    world.obey("c")
    world.wish("b", 1)
    world.wish("a", 1)
    world.decide()
    assert world.live("a") == []
    assert Reason.WAITS in world.grants["a"].reasons


def test_one_that_ends_in_its_sleep_holds_nothing() -> None:
    """Its process is being ended and is not gone yet: its card is another's all the same."""
    world = one_card()
    asleep(world)
    world.wish("b", 1)
    world.decide()
    world.see("a", ("a-r1-0", S.STOPPING))
    world.decide()
    assert world.live("b") == ["b-r1-0"]
    assert_not_overcommitted(world)
    world.see("a")
    world.decide()
    assert world.draining("a") == []


def test_one_of_an_older_revision_is_not_woken() -> None:
    """Only the active revision is woken; the other one is the adapter's to end."""
    world = one_card()
    asleep(world)
    world.declare("a", revision=2)
    world.wish("a", 1)
    world.decide()
    assert world.live("a") == ["a-r2-0"]


def test_a_sleeper_that_vanished_is_started_cold() -> None:
    """Woken in the moment in which it ended: the grant stands, and the adapter starts it anew under its name."""
    world = one_card()
    asleep(world)
    world.wish("a", 1)
    world.decide()
    world.see("a")
    world.decide()
    assert world.live("a") == ["a-r1-0"]


def test_how_many_are_worth_it_is_passed_on() -> None:
    """As the wish says it, with the next grant, also where nothing else changes; not beside a person's number."""
    world = one_card()
    asleep(world)
    assert world.grants["a"].asleep is None
    for worth in (1, 0, None):
        world.wish("a", 0, asleep=worth)
        world.decide()
        assert world.grants["a"].asleep == worth
    world.wish("a", 0, asleep=1)
    world.scale("a", 0, seconds=60)
    world.decide()
    assert world.grants["a"].asleep is None
