"""Which replicas that are only kept go to a model for which requests wait: whose first, then what the cards are worth
afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.grants import Placement
from preemption.core.giving import CONSIDERED_MOST
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.placement import place_among
from tests.support.pool import World, needs, node


def keep(world: World, *names: str) -> None:
    """What these have is ready, idle, and only kept from now on."""
    for name in names:
        world.obey(name)
        world.wish(name, len(world.live(name)), kept=len(world.live(name)))
    world.decide(after=100)


def fill(world: World, *wanted: tuple[str, int]) -> None:
    """Models by name, of one replica that takes so many cards, placed in this order; then only kept."""
    for name, gpus in wanted:
        world.declare(name, resources=needs(gpus=gpus))
        world.wish(name, 1)
        world.decide()
    keep(world, *(name for name, _ in wanted))


def given_away(world: World) -> list[str]:
    """All that drains."""
    return sorted(name for model in world.declared for name in world.draining(model))


def test_of_equals_the_one_goes_that_leaves_no_part_of_its_place() -> None:
    """One card is wanted: not the model of two cards gives, though its name is last, but the one of one card."""
    world = World(node("n1", gpus=2), node("n2", gpus=1))
    fill(world, ("z", 2), ("a", 1))
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    world.decide()
    assert given_away(world) == ["a-r1-0"]


def test_of_equals_as_few_as_possible_go() -> None:
    """Two cards are wanted: one model of two gives rather than two of one, whatever their names are."""
    world = World(node("n1", gpus=2), node("n2", gpus=2))
    fill(world, ("a", 2), ("y", 1), ("z", 1))
    world.declare("b", resources=needs(gpus=2))
    world.wish("b", 1, waits=True)
    world.decide()
    assert given_away(world) == ["a-r1-0"]


def test_whose_comes_before_how_well_it_fits() -> None:
    """A model of lower priority gives first, though one of its cards is then left over."""
    world = World(node("n1", gpus=2), node("n2", gpus=1))
    world.declare("z", priority=50)
    fill(world, ("z", 2), ("a", 1))
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    world.decide()
    assert given_away(world) == ["z-r1-0"]


def test_no_more_than_is_needed_of_the_lowest() -> None:
    """Three cards are wanted of a node with one of low, one of middle and two of high priority: low and high give."""
    world = World(node("n1", gpus=4))
    for name, priority in (("low", 10), ("middle", 20), ("high", 30)):
        world.declare(name, priority=priority)
    fill(world, ("low", 1), ("middle", 1), ("high", 2))
    world.declare("b", resources=needs(gpus=3))
    world.wish("b", 1, waits=True)
    world.decide()
    assert given_away(world) == ["high-r1-0", "low-r1-0"]


@pytest.mark.parametrize("busy", [False, True])
def test_any_of_those_that_run_as_much_may_be_the_one_that_is_only_kept(busy: bool) -> None:
    """One of three replicas is only kept. The newest stands on a node that nobody may use; another goes that is as
    idle, and none that runs more."""
    world = World(node("n1", gpus=1))
    world.declare("a", resources=needs(gpus=1))
    for count, where in ((1, "n2"), (2, "n3"), (3, "")):
        world.wish("a", count)
        world.decide()
        world.obey("a")
        world.decide(after=1)
        if where:
            world.set_node(node(where, gpus=1))
    places = {one.replica: one.placement.node for one in world.grants["a"].replicas}
    assert places["a-r1-2"] == "n3"
    world.pool.set_cordoned("n3", "n3-gpu-0", cordoned=True)
    for name in places:
        world.load("a", name, float(busy and name != "a-r1-2"))
    world.wish("a", 3, kept=1)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    world.decide(after=100)
    assert given_away(world) == ([] if busy else ["a-r1-1"])


def test_of_an_object_that_ends_its_last_first_the_later_ones_go_too() -> None:
    """The last stands where it does not help: it goes all the same, since the one before cannot go without it."""
    world = World(node("n1", gpus=1))
    world.declare("a", resources=needs(gpus=1))
    for count in (1, 2):
        world.wish("a", count)
        world.decide()
        world.obey("a")
        world.decide(after=1)
        world.set_node(node("n2", gpus=1))
    seen = world.observed["a"]
    in_order = tuple(replace(one, ordinal=int(one.replica[-1])) for one in seen.replicas)
    world.observed["a"] = replace(seen, replicas=in_order)
    world.pool.set_observed(world.observed["a"])
    world.pool.set_cordoned("n2", "n2-gpu-0", cordoned=True)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    for kept, going in ((1, []), (2, ["a-r1-0", "a-r1-1"])):
        world.wish("a", 2, kept=kept)
        world.decide(after=100)
        assert given_away(world) == going


def test_thousands_that_are_kept_are_not_all_compared() -> None:
    """Some of them are, and one goes."""
    world = World(*(node(f"n{at}", gpus=8) for at in range(10)))
    fill(world, *((f"m{at:02}", 1) for at in range(80)))
    assert len(world.declared) > CONSIDERED_MOST
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, waits=True)
    world.decide()
    assert len(given_away(world)) == 1


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from([needs(fraction=0.5, cpu=1), needs(fraction=0.3, cpu=2), needs(gpus=1, cpu=4),
                              needs(gpus=2, cpu=8)]), min_size=2, max_size=8),
    st.sampled_from([needs(fraction=0.4, cpu=2), needs(gpus=1, cpu=3), needs(gpus=2, cpu=4)]),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)  # fmt: skip
def test_no_other_one_would_leave_them_less_fragmented(kept: list[object], wanted: object, gpus: list[int]) -> None:
    """Whatever is kept: who goes is needed, and of models that give one no other leaves less lost."""
    world = World(*(node(f"n{at}", gpus=some, cpu=12.0) for at, some in enumerate(gpus)))
    for at, takes in enumerate(kept):
        world.declare(f"m{at}", resources=takes)
        world.wish(f"m{at}", 1)
    world.decide()
    keep(world, *(name for name in world.declared if world.live(name)))
    for name in [name for name in world.declared if not world.live(name)]:
        world.wish(name, 0)
    world.declare("wants", resources=wanted)
    world.decide()
    names = [f"{name}-r1-0" for name in world.declared if world.live(name)]
    ledger = world.pool.ledger
    world.wish("wants", 1, waits=True)
    without = {name: after(ledger, [name], world) for name in names}
    world.decide()
    going = given_away(world)
    if world.live("wants"):
        assert not going, "it fits by itself"
        return
    assert all(after(ledger, [one for one in going if one != left], world) is None for left in going)
    if not going:
        assert after(ledger, names, world) is None
    if len(going) == 1:
        assert without[going[0]] == min(lost for lost in without.values() if lost is not None)
    elif going:
        assert all(lost is None for lost in without.values())


def after(ledger: Ledger, gone: list[str], world: World) -> int | None:
    """What more is lost of what is free when these go and `wants` comes; None: it has no place then."""
    holdings = {name: ledger.holdings[name] for name in gone}
    before = sum(ledger.gradient.lost(one.look) for one in ledger.nodes.values())
    need = need_of(world.declared["wants"].resources)
    for name in gone:
        ledger.release(name)
    found: Placement | None = place_among(ledger.nodes.values(), need, world.declared["wants"].terms, ledger.gradient)
    lost = None
    if found is not None:
        ledger.hold("tried", Holding(found, need))
        lost = sum(ledger.gradient.lost(one.look) for one in ledger.nodes.values()) - before
        ledger.release("tried")
    for name, holding in holdings.items():
        ledger.hold(name, holding)
    return lost
