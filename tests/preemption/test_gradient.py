"""The price of a place without numpy: that of the arrays, choice by choice; and what the allocator makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.shapes import MILLI, Task
from preemption.core.gpus.topology import OVER_PCIE, OVER_SOCKETS, Domain, apart, pick
from preemption.core.gradient import PARTS, TYPICAL_MOST, Gradient
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.lending.mirror import Mirror
from preemption.core.placement import place, place_among
from preemption.core.tasks import task_of_need
from preemption.core.terms import ANYWHERE
from tests.support.pool import GI, World, needs, node

KINDS = (
    needs(gpus=1), needs(gpus=1, cpu=6), needs(gpus=2, cpu=2), needs(gpus=4, cpu=4), needs(fraction=0.5),
    needs(fraction=0.3, cpu=2), needs(cpu=3), needs(mig="1g.10gb"), needs(mig="3g.40gb"), needs(fraction=0.2),
    replace(needs(), gpu_bytes=10 * GI), replace(needs(cpu=2), gpu_bytes=30 * GI),
)  # fmt: skip
HGX: tuple[Domain, ...] = ((0, 0),) * 2 + ((0, 1),) * 2
BRIDGED: tuple[Domain, ...] = ((0, 0), (0, 0), (1, 1), (1, 1))
PLAIN: tuple[Domain, ...] = ((None, 0), (None, 0), (None, 1), (None, 1))
MIG = ("1g.10gb", "1g.10gb", "3g.40gb")
TURNS = tuple(Card(id="", memory_bytes=48 * GI, virtual=True, turns=4) for _ in range(4))
OTHERS = (
    TURNS,
    (Card(id="", memory_bytes=80 * GI, virtual=True), *TURNS[:2]),
    (Card(id="", memory_bytes=24 * GI),) * 2,
)
"""Cards beside: turns of one, a large one with turns of others, two small ones."""


Made = tuple[tuple[Domain, ...], float, tuple[str, ...], tuple[Card, ...]]


def machine(
    name: str, domains: tuple[Domain, ...], cpu: float, profiles: tuple[str, ...] = (), others: tuple[Card, ...] = ()
) -> CardsObserved:
    cards = tuple(Card(id=f"{name}-{at}", link=link, numa=numa) for at, (link, numa) in enumerate(domains))
    cards += tuple(replace(card, id=f"{name}-o{at}") for at, card in enumerate(others))
    cards += tuple(Card(id=f"{name}-m{at}", profile=profile) for at, profile in enumerate(profiles))
    return CardsObserved(node=name, cpu=cpu, memory_bytes=512 * GI, cards=cards)


def mix_of(gradient: Gradient) -> Mix:
    """What usually comes, as the arrays know it."""
    tasks = [Task(cpu_milli=one.cpu, gpus=one.gpus, milli=one.milli or MILLI, gpu_bytes=one.gpu_bytes,
                  profile=one.profile)
             for one in gradient.typical()]  # fmt: skip
    return Mix(tuple(tasks), tuple(one.weight for one in gradient.typical()))


machines = st.lists(
    st.tuples(st.sampled_from((HGX, BRIDGED, PLAIN, ((None, None),) * 4, ())), st.sampled_from((4.0, 8.0, 24.0)),
              st.sampled_from(((), MIG)), st.sampled_from(((), (), *OTHERS))),
    min_size=1, max_size=6,
)  # fmt: skip
kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=25)


@settings(max_examples=50)
@given(machines, kinds, kinds)
def test_it_chooses_as_the_arrays_do(made: list[Made], declared: list[Resources], coming: list[Resources]) -> None:
    """Whatever is declared and comes: the same node, and a card that is as good; so the allocator and the planner
    of training never disagree about what is best."""
    ledger, among = Ledger(), Ledger()
    for at, one in enumerate(made):
        ledger.set_node(machine(f"n{at}", *one))
        among.set_node(machine(f"n{at}", *one))
    for at, resources in enumerate(declared):
        ledger.gradient.declare(f"m{at}", need_of(resources))
    mix = mix_of(ledger.gradient)
    mirror = Mirror(ledger)
    for at, resources in enumerate(coming):
        need = need_of(resources)
        space = mirror.sync()
        spot = Chooser(space, Policy.RELUME, mix).choose(task_of_need(need))
        found = place(ledger, need)
        assert found == place_among(among.nodes.values(), need, ANYWHERE, ledger.gradient)
        assert (found is None) == (spot is None)
        if found is None or spot is None:
            continue
        chosen = mirror.placement(spot)
        assert found.node == chosen.node
        if not need.shares:
            assert found.gpus == chosen.gpus
        ledger.hold(f"r{at}", Holding(found, need))
        among.hold(f"r{at}", Holding(found, need))


@settings(max_examples=50)
@given(machines, st.lists(st.tuples(st.integers(0, 5), st.sampled_from(KINDS)), max_size=30))
def test_nodes_stay_with_those_that_look_alike(made: list[Made], steps: list[tuple[int, Resources]]) -> None:
    """Each node is under its own look, once, whatever was taken and given back."""
    ledger = Ledger()
    for at, one in enumerate(made):
        ledger.set_node(machine(f"n{at}", *one))
    for at, resources in steps:
        found = place(ledger, need_of(resources))
        ledger.release(f"r{at}")
        if found is not None and ledger.exists(found):
            ledger.hold(f"r{at}", Holding(found, need_of(resources)))
        by_name = {name: look for look, names in ledger.alike().items() for name in names}
        assert by_name == {name: one.look for name, one in ledger.nodes.items()}
        assert sum(map(len, ledger.alike().values())) == len(ledger.nodes)


def test_what_is_usual_decides_between_equal_holes() -> None:
    """One card is taken where whole pairs stay whole as long as pairs are what comes, though that is not the best
    fit."""
    world = World(node("a", gpus=3, cpu=64), node("b", gpus=2, cpu=60))
    world.declare("one", resources=needs(gpus=1))
    world.wish("one", 1)
    for at in range(5):
        world.declare(f"pair{at}", resources=needs(gpus=2))
    world.decide()
    assert world.grants["one"].replicas[0].placement.node == "a"
    alone = World(node("a", gpus=3, cpu=64), node("b", gpus=2, cpu=60))
    alone.declare("one", resources=needs(gpus=1))
    alone.wish("one", 1)
    alone.decide()
    assert alone.grants["one"].replicas[0].placement.node == "b"


def test_light_work_goes_where_cards_lack_cores() -> None:
    """A replica that needs a core a card goes to the node with few cores, so that heavy ones find cores beside cards:
    best fit alone would mix them until cards are left that nobody can use."""
    world = World(node("few", gpus=4, cpu=7), node("many", gpus=4, cpu=32))
    world.declare("heavy", resources=needs(gpus=1, cpu=8))
    world.declare("light", resources=needs(gpus=1, cpu=1))
    world.wish("light", 4)
    world.decide()
    world.wish("heavy", 4)
    world.decide()
    assert {one.placement.node for one in world.grants["light"].replicas} == {"few"}
    assert len(world.live("heavy")) == 4


def test_a_deleted_model_is_not_usual_any_more() -> None:
    """What nobody declares decides nothing; a model that changes counts once; and a whole card may always come."""
    gradient = Gradient()
    gradient.declare("a", need_of(needs(gpus=2)))
    gradient.declare("a", need_of(needs(fraction=0.5)))
    gradient.declare("b", need_of(needs(fraction=0.5)))
    assert gradient.typical() == ((1, 500, 0, "", 1000, round(PARTS * 2 / 3)), (1, MILLI, 0, "", 0, round(PARTS / 3)))
    gradient.declare("a", None)
    gradient.declare("b", None)
    assert gradient.typical() == ((1, MILLI, 0, "", 0, PARTS),)


def test_one_more_among_many_changes_no_price() -> None:
    """Weights are rounded, so prices last; the most frequent kinds count."""
    gradient = Gradient()
    for at in range(1000):
        gradient.declare(f"m{at}", need_of(needs(gpus=1 + at % 2)))
    before = gradient.typical()
    gradient.declare("one-more", need_of(needs(gpus=1)))
    assert gradient.typical() == before
    for at in range(100):
        gradient.declare(f"odd{at}", need_of(needs(gpus=1, cpu=2 + at)))
    assert len(gradient.typical()) == TYPICAL_MOST


@pytest.mark.parametrize(
    ("domains", "count", "lost"),
    [
        pytest.param(HGX, 4, 0, id="one-island"),
        pytest.param(BRIDGED, 2, 0, id="a-bridge"),
        pytest.param(BRIDGED, 4, 4 * OVER_SOCKETS, id="two-bridges"),
        pytest.param(PLAIN, 2, 2 * OVER_PCIE, id="one-socket"),
        pytest.param(PLAIN, 3, 3 * OVER_SOCKETS, id="two-sockets"),
        pytest.param(((0, None), (1, None)), 2, 2 * OVER_PCIE, id="islands-of-unknown-sockets"),
        pytest.param(((None, None),) * 4, 4, 0, id="unknown"),
        pytest.param(PLAIN, 1, 0, id="one-card"),
    ],
)
def test_what_is_lost_without_nvlink(domains: tuple[Domain, ...], count: int, lost: int) -> None:
    """Nothing within an island, more across sockets than over PCIe, and nothing where it is not known."""
    assert apart(domains, pick(domains, range(len(domains)), count)) == lost


def test_several_cards_go_where_they_reach_each_other() -> None:
    """Two cards go to a bridge that is free rather than across sockets, though the other node is the better fit; and
    one card goes beside a broken pair."""
    world = World(machine("a", BRIDGED, 64.0), machine("b", PLAIN[1:3], 64.0))
    world.declare("pair", resources=needs(gpus=2))
    world.wish("pair", 1)
    world.decide()
    (pair,) = world.grants["pair"].replicas
    assert (pair.placement.node, pair.placement.gpus) == ("a", ("a-0", "a-1"))
    ledger = Ledger()
    ledger.set_node(machine("a", BRIDGED, 64.0))
    first = place(ledger, need_of(needs(gpus=1)))
    assert first is not None
    ledger.hold("one", Holding(first, need_of(needs(gpus=1))))
    second = place(ledger, need_of(needs(gpus=1)))
    assert second is not None
    assert (first.gpus, second.gpus) == (("a-0",), ("a-1",))
