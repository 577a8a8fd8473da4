"""Who goes of replicas that are equally good to go: the one that leaves the cards least fragmented."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.grants import Placement, ReplicaGrant
from events.types.replicas import ReplicaState
from events.types.shared import Resources
from events.units import Instant
from preemption.core.freeing import Freeing
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.placement import place
from preemption.core.standing import Entry, first_to_go
from tests.support.pool import World, needs, node

HALVES = (needs(fraction=0.5, cpu=1), needs(fraction=0.3, cpu=2), needs(gpus=1, cpu=4), needs(gpus=2, cpu=8))


def lost(ledger: Ledger) -> int:
    """How fragmented what is free is, over all nodes."""
    return sum(ledger.gradient.lost(one.look) for one in ledger.nodes.values())


@pytest.mark.parametrize("busy", [False, True])
def test_the_one_goes_that_leaves_a_whole_node(busy: bool) -> None:
    """Three idle replicas on two nodes of two cards, and a model of two cards: the one goes that is alone on its node,
    though it is the oldest. One that runs something is not equal: then another goes."""
    world = World(node("n1", gpus=2))
    world.declare("a", resources=needs(gpus=1))
    world.pool.set_cordoned("n1", "n1-gpu-1", cordoned=True)
    for count in (1, 2, 3):
        world.wish("a", count)
        world.decide()
        world.obey("a")
        world.decide(after=1)
        world.set_node(node("n2", gpus=2))
    world.pool.set_cordoned("n1", "n1-gpu-1", cordoned=False)
    world.declare("b", resources=needs(gpus=2))
    places = {one.replica: one.placement.node for one in world.grants["a"].replicas}
    alone = "a-r1-0"
    assert sorted(places.values()) == ["n1", "n2", "n2"]
    for name in places:
        world.load("a", name, 1.0 if busy and name == alone else 0.0)
    world.wish("a", 2)
    world.decide()
    (gone,) = world.draining("a")
    assert (gone == alone) is not busy


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(HALVES), min_size=1, max_size=6), st.sampled_from(HALVES),
    st.lists(st.sampled_from(HALVES), max_size=8), st.integers(2, 9), st.data(),
)  # fmt: skip
def test_no_equal_one_would_leave_them_less_fragmented(
    declared: list[Resources], mine: Resources, others: list[Resources], replicas: int, data: st.DataObject
) -> None:
    """Whatever is declared and held: freeing the first to go leaves at most as much lost as freeing any other that is
    equal; and so for each that goes after it."""
    ledger = Ledger()
    for number, gpus in enumerate(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))):
        ledger.set_node(node(f"n{number}", gpus=gpus, cpu=float(data.draw(st.integers(4, 32)))))
    for number, one in enumerate(declared):
        ledger.gradient.declare(f"m{number}", need_of(one))
    wanted = data.draw(st.permutations([*[(f"a-r1-{at}", mine) for at in range(replicas)],
                                        *[(f"o-r1-{at}", one) for at, one in enumerate(others)]]))  # fmt: skip
    for name, takes in wanted:
        found = place(ledger, need_of(takes))
        if found is not None:
            ledger.hold(name, Holding(found, need_of(takes)))
    names = [name for name in ledger.holdings if name.startswith("a-")]
    entries = [_idle(name, ledger, data.draw(st.integers(1, 3))) for name in names]
    count = data.draw(st.integers(1, max(1, len(names) - 1)))
    before = lost(ledger)
    order = first_to_go(entries, count, Freeing(ledger))
    assert sorted(entry.name for entry in order) == sorted(names)
    assert lost(ledger) == before, "asking changes nothing"
    for at, entry in enumerate(order[: min(count, len(names) - 1)]):
        assert without(ledger, entry.name) == min(without(ledger, other.name) for other in order[at:])
        ledger.release(entry.name)


def without(ledger: Ledger, name: str) -> int:
    """What would be lost of what is free without it, by doing it."""
    holding = ledger.holdings[name]
    ledger.release(name)
    left = lost(ledger)
    ledger.hold(name, holding)
    return left


def _idle(name: str, ledger: Ledger, created: int) -> Entry:
    grant = ReplicaGrant(replica=name, revision=1, placement=ledger.holdings[name].placement, resources=needs())
    return Entry(grant, foreign=False, state=ReplicaState.READY, running=0.0, created_at=Instant(created))


def test_of_what_is_not_known_age_decides() -> None:
    """A replica that holds nothing that is known changes nothing: then the newest goes, as without cards."""
    entries = [
        Entry(ReplicaGrant(replica=f"a-r1-{at}", revision=1, placement=Placement(node="?"), resources=needs()),
              foreign=False, state=ReplicaState.READY, running=0.0, created_at=Instant(at + 1))
        for at in range(3)
    ]  # fmt: skip
    assert [entry.name for entry in first_to_go(entries, 2, Freeing(Ledger()))] == ["a-r1-2", "a-r1-1", "a-r1-0"]
