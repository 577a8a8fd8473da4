"""The allocator over a pool: who gets what, what is short, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.replicas import Card, ReplicaState
from events.types.shared import Resources
from preemption.core.view import Reason
from tests.support.pool import GI, World, assert_not_overcommitted, needs, node


def test_a_wish_is_granted_by_name_and_place() -> None:
    """The first replica is named after model, revision and the lowest index, and gets a card."""
    world = World(node(gpus=2))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    (grant,) = world.decide().grants
    (replica,) = grant.replicas
    assert (replica.replica, replica.placement.node, replica.placement.gpus) == ("a-r1-0", "n1", ("n1-gpu-0",))
    assert (grant.wished, grant.shortage, grant.reasons) == (1, None, ("wish",))


def test_the_same_again_changes_nothing() -> None:
    """A wish that says the same, or an observation that changes nothing, is not answered with a new grant."""
    world = World(node())
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.wish("a", 1)
    assert world.decide().grants == ()
    world.obey("a")
    assert world.decide().grants == ()


@pytest.mark.parametrize(
    ("resources", "message", "reason"),
    [
        pytest.param(needs(gpus=1), "needs 1 GPU; 0 of 2 are free", Reason.LACKS_GPUS, id="gpus"),
        pytest.param(
            needs(fraction=0.5), "needs 0.5 of a GPU; the freest card has 0 left", Reason.LACKS_GPUS, id="part"
        ),
        pytest.param(needs(cpu=8), "needs 8 cores; 6 of 8 are free", Reason.LACKS_CPU, id="cpu"),
        pytest.param(
            needs(memory=15 * GI), "needs 15Gi of memory; 14Gi of 16Gi are free", Reason.LACKS_MEMORY, id="memory"
        ),
        pytest.param(needs(gpus=3), "needs 3 GPUs; the largest node has 2 GPUs", Reason.FITS_NOWHERE, id="never-gpus"),
        pytest.param(
            needs(cpu=9, memory=17 * GI),
            "needs 9 cores; the largest node has 8 cores, needs 17Gi of memory; the largest node has 16Gi of memory",
            Reason.FITS_NOWHERE,
            id="never-both",
        ),
        pytest.param(
            needs(mig="1g.10gb"),
            "needs MIG profile 1g.10gb; no card here is split into MIG profiles",
            Reason.FITS_NOWHERE,
            id="mig",
        ),
    ],
)
def test_a_shortage_says_what_is_lacking(resources: object, message: str, reason: Reason) -> None:
    """The message names the resource, how much is needed and how much is free."""
    world = World(node(gpus=2, cpu=8, memory=16 * GI))
    world.declare("big", resources=needs(gpus=1))
    world.wish("big", 2)
    world.decide()
    world.declare("a", resources=resources)
    world.wish("a", 2)
    (grant,) = world.decide().grants
    assert grant.shortage is not None
    assert (grant.shortage.replicas, grant.shortage.message) == (2, message)
    assert reason in grant.reasons


def test_several_nodes_have_room_only_together() -> None:
    """A shortage over several nodes says how much is free on the best of them."""
    world = World(node("n1", gpus=2), node("n2", gpus=2))
    world.declare("one", resources=needs(gpus=1))
    world.wish("one", 2)
    world.decide()
    assert {r.placement.node for r in world.grants["one"].replicas} == {"n1"}
    world.wish("one", 3)
    world.decide()
    world.declare("two", resources=needs(gpus=2))
    world.wish("two", 1)
    (grant,) = world.decide().grants
    assert grant.shortage is not None
    assert grant.shortage.message == "needs 2 GPUs; 1 of 4 are free"


def test_nothing_is_known_before_a_node_reports() -> None:
    """Without any node a wish is short, and is granted as soon as one reports."""
    world = World()
    world.declare("a")
    world.wish("a", 1)
    (grant,) = world.decide().grants
    assert grant.shortage is not None
    assert grant.shortage.message == "no node has reported what it has yet"
    world.set_node(node())
    world.decide()
    assert world.live("a") == ["a-r1-0"]
    assert world.grants["a"].shortage is None


def test_fractions_are_packed_on_one_card() -> None:
    """Fractions go to the card with the least left that is enough, so whole cards stay whole."""
    world = World(node(gpus=2))
    world.declare("half", resources=needs(fraction=0.5))
    world.declare("third", resources=needs(fraction=0.3))
    world.wish("half", 1)
    world.decide()
    world.wish("third", 1)
    world.decide()
    world.declare("whole", resources=needs(gpus=1))
    world.wish("whole", 1)
    world.decide()
    assert world.grants["third"].replicas[0].placement.gpus == world.grants["half"].replicas[0].placement.gpus
    assert world.live("whole") == ["whole-r1-0"]
    assert_not_overcommitted(world)


def test_priority_goes_first_whatever_the_gain() -> None:
    """Of two wishes at once, the higher priority gets the only card, though the other gains more."""
    world = World(node(gpus=1))
    world.declare("low", priority=10, resources=needs(gpus=1))
    world.declare("high", priority=20, resources=needs(gpus=1))
    world.wish("low", 1, gain=99)
    world.wish("high", 1)
    world.decide()
    assert (world.live("high"), world.live("low")) == (["high-r1-0"], [])


def test_gain_goes_first_among_equals() -> None:
    """Of two wishes of one priority, the larger marginal gain gets the only card."""
    world = World(node(gpus=1))
    for name in ("a", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("a", 1, gain=1)
    world.wish("b", 1, gain=2)
    world.decide()
    assert (world.live("a"), world.live("b")) == ([], ["b-r1-0"])


def test_equals_take_turns() -> None:
    """Two models that are alike share what there is, one replica each in turn."""
    world = World(node(gpus=4))
    for name in ("a", "b"):
        world.declare(name, resources=needs(gpus=1))
        world.wish(name, 4)
    world.decide()
    assert (len(world.live("a")), len(world.live("b"))) == (2, 2)


def test_what_runs_is_never_taken_for_a_higher_priority() -> None:
    """A running replica stays where it is, however important the model that is short."""
    world = World(node(gpus=1))
    world.declare("low", priority=0, resources=needs(gpus=1))
    world.wish("low", 1)
    world.decide()
    world.obey("low")
    world.declare("high", priority=1000, resources=needs(gpus=1))
    world.wish("high", 1)
    world.decide()
    assert (world.live("low"), world.live("high")) == (["low-r1-0"], [])


def test_who_is_short_longest_comes_first() -> None:
    """Between equals with as many replicas, what becomes free goes to the one that has waited longer; nothing flaps."""
    world = World(node(gpus=1))
    for name in ("holder", "a", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("holder", 1)
    world.decide()
    world.obey("holder")
    world.wish("b", 1)
    world.decide(after=1)
    world.wish("a", 1)
    world.decide(after=1)
    world.wish("holder", 0)
    world.decide(after=1)
    world.see("holder")
    world.decide(after=1)
    assert (world.live("a"), world.live("b")) == ([], ["b-r1-0"])
    for _ in range(5):
        assert world.decide(after=10).grants == ()


def test_a_lower_priority_waits_for_what_a_higher_one_lacks() -> None:
    """While a model needs two cards and one is free, a lower priority does not get that one, but may have cores."""
    world = World(node(gpus=2))
    world.declare("holder", resources=needs(gpus=1))
    world.wish("holder", 1)
    world.decide()
    world.declare("high", priority=200, resources=needs(gpus=2))
    world.declare("low", priority=50, resources=needs(gpus=1))
    world.declare("cpu", priority=50, resources=needs())
    for name in ("high", "low", "cpu"):
        world.wish(name, 1)
    world.decide()
    assert (world.live("high"), world.live("low"), world.live("cpu")) == ([], [], ["cpu-r1-0"])
    shortage = world.grants["low"].shortage
    assert shortage is not None
    assert shortage.message == "waits for model high of priority 200, which lacks the same"
    world.wish("high", 0)
    world.decide()
    assert world.live("low") == ["low-r1-0"]


@pytest.mark.parametrize(
    ("first", "beside", "waits"),
    [
        (needs(mig="1g.5gb"), [needs(gpus=1), needs(mig="3g.20gb"), needs(fraction=0.5)], [needs(mig="1g.5gb")]),
        (needs(gpus=3), [needs(mig="1g.5gb"), needs(mig="3g.20gb")], [needs(gpus=1), needs(fraction=0.5)]),
    ],
)
def test_who_lacks_instances_claims_no_cards(first: Resources, beside: list[Resources], waits: list[Resources]) -> None:
    """A higher priority waits in vain: only who takes what it lacks waits for it, cards or instances of a profile."""
    mig = (Card(id=f"m{at}", product="NVIDIA A100-SXM4-40GB", profile=profile)
           for at, profile in enumerate(("1g.5gb", "1g.5gb", "3g.20gb")))  # fmt: skip
    machine = node(gpus=4)
    world = World(replace(machine, cards=(*machine.cards, *mig)))
    for name, resources in (("held", needs(gpus=2)), ("small", needs(mig="1g.5gb"))):
        world.declare(name, resources=resources)
        world.wish(name, 1)
    world.decide()
    world.declare("high", priority=200, resources=first)
    world.wish("high", 2)
    for at, resources in enumerate((*beside, *waits)):
        world.declare(f"low{at}", priority=50, resources=resources)
        world.wish(f"low{at}", 1)
    world.decide()
    got = [bool(world.live(f"low{at}")) for at in range(len(beside) + len(waits))]
    assert got == [True] * len(beside) + [False] * len(waits)


def test_a_wish_that_fits_nowhere_blocks_nobody() -> None:
    """A higher priority that no node could ever hold claims nothing."""
    world = World(node(gpus=1))
    world.declare("high", priority=200, resources=needs(gpus=8))
    world.declare("low", priority=50, resources=needs(gpus=1))
    world.wish("high", 1)
    world.wish("low", 1)
    world.decide()
    assert world.live("low") == ["low-r1-0"]


def test_what_drains_is_not_free_before_it_is_gone() -> None:
    """A card goes to the next model only when the draining replica is seen to be gone."""
    world = World(node(gpus=1))
    for name in ("a", "b"):
        world.declare(name, resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.obey("a")
    world.wish("a", 0)
    world.wish("b", 1)
    world.decide()
    assert (world.draining("a"), world.live("b")) == (["a-r1-0"], [])
    world.see("a", ("a-r1-0", ReplicaState.DRAINING))
    world.decide()
    assert world.live("b") == []
    world.see("a")
    world.decide()
    assert (world.grants["a"].replicas, world.live("b")) == ((), ["b-r1-0"])


def test_what_is_seen_and_not_named_still_holds_its_card() -> None:
    """A replica that runs though no grant names it keeps its card until it is gone."""
    world = World(node(gpus=1))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.obey("a")
    fresh = World(node(gpus=1))
    fresh.declare("a", resources=needs(gpus=1))
    fresh.observed["a"] = world.observed["a"]
    fresh.pool.set_observed(world.observed["a"])
    fresh.declare("b", resources=needs(gpus=1))
    fresh.wish("b", 1)
    fresh.decide()
    assert fresh.live("b") == []


def test_a_node_that_shrank_takes_back_what_never_started() -> None:
    """After a restart with fewer cards, replicas on cards that are gone are placed anew or become a shortage."""
    world = World(node(gpus=2))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 2)
    world.decide()
    world.set_node(node(gpus=1))
    world.decide()
    assert len(world.live("a")) == 1
    assert world.grants["a"].shortage is not None
    assert_not_overcommitted(world)


def test_a_node_with_less_memory_takes_back_the_last_in_rank() -> None:
    """When what is granted is more than there is, the lower priority gives way if it has not started."""
    world = World(node(memory=4 * GI))
    world.declare("low", priority=1, resources=needs(memory=2 * GI))
    world.declare("high", priority=2, resources=needs(memory=2 * GI))
    world.wish("low", 1)
    world.wish("high", 1)
    world.decide()
    world.set_node(node(memory=3 * GI))
    world.decide()
    assert (len(world.live("high")), len(world.live("low"))) == (1, 0)
    assert "placement_gone" in world.grants["low"].reasons
    assert_not_overcommitted(world)


def test_a_claim_stands_as_long_as_the_wish() -> None:
    """A lower priority that comes later waits too, until the claim is gone."""
    world = World(node(gpus=2))
    world.declare("holder", resources=needs(gpus=1))
    world.wish("holder", 1)
    world.decide()
    world.declare("high", priority=200, resources=needs(gpus=2))
    world.wish("high", 1)
    world.decide()
    world.declare("low", priority=50, resources=needs(gpus=1))
    world.wish("low", 1)
    world.decide(after=100)
    assert world.live("low") == []
    world.declare("high", deleted=True)
    world.decide()
    assert world.live("low") == ["low-r1-0"]


def test_a_name_that_is_seen_is_not_given_again() -> None:
    """A replica that nobody names may still run: the next one gets another name."""
    world = World(node())
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.obey("a")
    late = World(node())
    late.declare("a", resources=needs(gpus=1))
    late.pool.set_observed(world.observed["a"])
    late.wish("a", 1)
    late.decide()
    assert late.live("a") == ["a-r1-1"]
    assert late.grants["a"].replicas[0].placement.gpus == ("n1-gpu-1",)
