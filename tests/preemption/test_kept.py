"""Replicas that are only kept go to models for which requests wait: whose, when, how many, and what is said of it."""

from __future__ import annotations

import pytest

from events.types.replicas import ReplicaState
from preemption.core.view import AllocatorPolicy, Reason
from tests.support.pool import World, needs, node


def fight(gpus: int = 1, *, start: float = 10.0) -> World:
    """`idle` has all cards, was ready `start` seconds after it was made, and that long ago; `b` is declared."""
    world = World(node(gpus=gpus))
    for name in ("idle", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("idle", gpus)
    world.decide()
    world.obey("idle", ready=False)
    world.decide(after=start)
    world.obey("idle")
    world.wish("idle", gpus, kept=gpus)
    world.decide(after=start)
    return world


def gone(world: World, model: str) -> None:
    """Its draining replicas are gone."""
    world.see(model, *((name, ReplicaState.READY) for name in world.live(model)))
    world.decide(after=1)


def test_a_kept_replica_goes_to_who_waits() -> None:
    """It drains at once, and its card goes to the model whose requests wait. Both grants say why."""
    world = fight()
    world.wish("b", 1, waits=True)
    world.decide()
    assert (world.draining("idle"), world.live("b")) == (["idle-r1-0"], [])
    mine, theirs = world.grants["b"], world.grants["idle"]
    assert Reason.COMING in mine.reasons
    assert mine.shortage is not None
    assert mine.shortage.message == "needs 1 GPU; 0 of 1 are free; waits for idle-r1-0 to drain"
    assert (theirs.wished, theirs.shortage, Reason.GIVES_UP in theirs.reasons) == (0, None, True)
    gone(world, "idle")
    assert (world.live("b"), world.grants["b"].shortage) == (["b-r1-0"], None)


@pytest.mark.parametrize(
    ("wish", "more"),
    [
        pytest.param({"waits": False}, {}, id="nobody waits"),
        pytest.param({"waits": True}, {"priority": 99}, id="of lower priority"),
        pytest.param({"waits": True}, {"resources": needs(gpus=2)}, id="it would not fit all the same"),
        pytest.param({"waits": True, "kept": 1}, {}, id="it would only be kept there too"),
    ],
)
def test_it_stays_where_it_helps_nobody_who_comes_first(wish: dict[str, int], more: dict[str, object]) -> None:
    """Without requests that wait, at equal priority at least, for a replica that would then fit, nothing changes."""
    world = fight()
    world.declare("b", **more)
    world.wish("b", 1, **wish)  # type: ignore[arg-type]  # tests name real fields
    world.decide()
    assert world.live("idle") == ["idle-r1-0"]


def test_a_persons_number_is_no_luxury() -> None:
    """While an override stands, nothing of it is only kept."""
    world = fight()
    world.scale("idle", 1, seconds=100.0)
    world.wish("b", 1, waits=True)
    world.decide()
    assert world.live("idle") == ["idle-r1-0"]


def test_no_more_than_is_needed() -> None:
    """Of three that are kept one goes for one that waits, and no second while the first drains."""
    world = fight(gpus=3)
    world.wish("b", 1, waits=True)
    world.decide()
    assert (len(world.draining("idle")), len(world.live("idle"))) == (1, 2)
    for _ in range(3):
        world.decide(after=1)
        world.wish("b", 1, gain=world.now, waits=True)
    assert (len(world.draining("idle")), len(world.live("idle"))) == (1, 2)
    gone(world, "idle")
    assert len(world.live("b")) == 1
    world.wish("b", 3, waits=True)
    world.decide()
    assert len(world.draining("idle")) == 2


def test_what_something_needs_stays() -> None:
    """Of two replicas of which one is kept, one goes, however many wait."""
    world = fight(gpus=2)
    world.wish("idle", 2, kept=1)
    world.wish("b", 2, waits=True)
    world.decide()
    gone(world, "idle")
    assert (len(world.live("idle")), len(world.live("b"))) == (1, 1)


def test_the_lowest_priority_gives_first() -> None:
    """Of several that keep something, the one that comes last gives."""
    world = World(node(gpus=2))
    for name, priority in (("high", 100), ("low", 50)):
        world.declare(name, resources=needs(gpus=1), priority=priority)
        world.wish(name, 1, kept=1)
    world.decide()
    for name in ("high", "low"):
        world.obey(name)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    world.decide(after=20)
    assert (world.draining("high"), world.draining("low")) == ([], ["low-r1-0"])


@pytest.mark.parametrize(("start", "held"), [(2.0, 10.0), (10.0, 10.0), (60.0, 60.0)])
def test_what_has_just_come_is_left_alone_for_as_long_as_it_started(start: float, held: float) -> None:
    """And for `least_hold` at least; then it goes by itself, without another event."""
    world = World(node(gpus=1))
    for name in ("idle", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("idle", 1, kept=1)
    world.decide()
    world.obey("idle", ready=False)
    world.decide(after=start)
    world.obey("idle")
    world.wish("b", 1, waits=True)
    plan = world.decide()
    assert world.live("idle") == ["idle-r1-0"]
    assert plan.again_at == world.now + held
    world.decide(after=held - 0.1)
    assert world.live("idle") == ["idle-r1-0"]
    world.decide(after=0.1)
    assert world.draining("idle") == ["idle-r1-0"]


def test_what_was_given_is_not_started_again_before_it_is_needed() -> None:
    """Though a card is free: nobody asks. Once somebody does, it is wanted like any other."""
    world = fight()
    world.wish("b", 1, waits=True)
    world.decide()
    gone(world, "idle")
    world.set_node(node(gpus=2))
    world.decide(after=1)
    assert (world.live("idle"), world.grants["idle"].shortage) == ([], None)
    world.wish("idle", 1, waits=True)
    world.decide(after=1)
    assert world.live("idle") == ["idle-r1-0"]
    assert Reason.GIVES_UP not in world.grants["idle"].reasons


def test_who_is_asked_while_it_drains_takes_it_back() -> None:
    """What serves already is better than a start, and no longer only kept."""
    world = fight()
    world.wish("b", 1, waits=True)
    world.decide()
    world.see("idle", ("idle-r1-0", ReplicaState.DRAINING))
    world.wish("idle", 1, waits=True)
    world.decide(after=1)
    assert (world.live("idle"), world.live("b")) == (["idle-r1-0"], [])


def test_two_that_are_asked_in_turn_each_get_their_time() -> None:
    """Both are asked all the time, each is only kept once it has served: at most one change in two starts' time."""
    world = World(node(gpus=1))
    start, owner, changes = 30.0, "", 0
    for name in ("a", "b"):
        world.declare(name, resources=needs(gpus=1))
        world.wish(name, 1, waits=True)
    world.decide()
    for _ in range(600):
        for name in ("a", "b"):
            for one in world.live(name):
                seen = world.observed.get(name)
                made = next((s.created_at for s in seen.replicas if s.replica == one), None) if seen else None
                ready = made is not None and world.now >= made + start
                world.see(name, (one, ReplicaState.READY if ready else ReplicaState.STARTING))
                world.wish(name, 1, kept=1 if ready else 0, waits=not ready)
            if not world.live(name) and name in world.grants:
                world.see(name)
                world.wish(name, 1, waits=True)
        world.decide(after=1)
        now = next((name for name in ("a", "b") if world.live(name)), owner)
        changes += now != owner
        owner = now
    assert 600 / (2 * start + 5) <= changes <= 600 / (2 * start)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_kept_want_lays_no_claim_and_comes_last(kept: int) -> None:
    """Who would only keep a replica neither comes before an equal that needs one nor keeps others from cards."""
    world = World(node(gpus=2))
    world.declare("holder", resources=needs(gpus=1))
    world.wish("holder", 1)
    world.decide()
    for name in ("a-keeps", "needs"):
        world.declare(name, resources=needs(gpus=1))
    world.declare("pair", resources=needs(gpus=2), priority=200)
    world.wish("pair", 1, kept=kept)
    world.wish("a-keeps", 1, gain=9, kept=1)
    world.wish("needs", 1)
    world.decide()
    assert (world.live("needs"), world.live("a-keeps")) == (["needs-r1-0"] if kept else [], [])


def test_while_a_revision_is_rolled_out_nothing_goes() -> None:
    """Which of its replicas would be the one to go is not settled yet."""
    world = fight(gpus=2)
    world.declare("idle", revision=2)
    world.wish("b", 1, waits=True)
    world.decide()
    assert Reason.GIVES_UP not in world.grants["idle"].reasons


def test_the_hold_can_be_set() -> None:
    """`least_hold` counts where the start took less."""
    world = World(node(gpus=1), policy=AllocatorPolicy(least_hold=100.0))  # type: ignore[arg-type]  # tests name real fields
    for name in ("idle", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("idle", 1, kept=1)
    world.decide()
    world.obey("idle")
    world.wish("b", 1, waits=True)
    assert world.decide(after=50).again_at == world.now + 50
    world.decide(after=50)
    assert world.draining("idle") == ["idle-r1-0"]
