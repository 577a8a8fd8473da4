"""What another hand ends: its successor comes at once where there is room, and the old one drains beside it."""

from __future__ import annotations

from tests.preemption.test_standing import DRAINING, READY, running


def test_a_successor_is_granted_at_once_where_there_is_room() -> None:
    """It has a place of its own, the old one keeps its card until it is gone, and then it is as before."""
    world = running(1, gpus=2)
    world.ends("a", "a-r1-0")
    (grant,) = world.decide().grants
    assert (world.draining("a"), world.live("a"), grant.shortage) == (["a-r1-0"], ["a-r1-1"], None)
    cards = [one.placement.gpus for one in grant.replicas]
    assert len({card for some in cards for card in some}) == 2
    world.see("a", ("a-r1-0", DRAINING), ("a-r1-1", READY))
    assert world.decide().grants == ()
    world.see("a", ("a-r1-1", READY))
    world.decide()
    assert (world.draining("a"), world.live("a")) == ([], ["a-r1-1"])


def test_without_room_it_waits_for_the_old_ones_place() -> None:
    """That is told as a shortage, and ends when the old one is gone."""
    world = running(1, gpus=1)
    world.ends("a", "a-r1-0")
    (grant,) = world.decide().grants
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], [])
    assert grant.shortage is not None
    world.see("a")
    (grant,) = world.decide().grants
    assert (len(world.live("a")), grant.shortage) == (1, None)


def test_what_another_hand_ends_is_never_taken_back() -> None:
    """Also one that was to drain anyway: when it is wanted again another one starts."""
    world = running(2, gpus=4)
    world.wish("a", 1)
    world.decide()
    (leaving,) = world.draining("a")
    world.see("a", *((name, DRAINING if name == leaving else READY) for name in ("a-r1-0", "a-r1-1")))
    world.ends("a", leaving)
    assert len(world.live("a")) == 1
    world.wish("a", 2)
    world.decide()
    assert leaving in world.draining("a")
    assert len(world.live("a")) == 2


def test_nothing_succeeds_what_is_not_wanted() -> None:
    """Its end is what was wanted."""
    world = running(1, gpus=2)
    world.wish("a", 0)
    world.ends("a", "a-r1-0")
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], [])
