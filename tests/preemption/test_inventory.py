"""The ledger and best fit: nothing is lost, nothing is given twice, ties are broken the same way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.types.grants import Placement
from events.types.replicas import Card, CardsObserved
from preemption.core.inventory import MILLI, Holding, Ledger, need_of
from preemption.core.placement import Kind, lack, place
from tests.support.pool import GI, needs, node


def ledger(*nodes: object) -> Ledger:
    made = Ledger()
    for one in nodes:
        made.set_node(one)  # type: ignore[arg-type]  # nodes, all of them
    return made


def fill(made: Ledger, replica: str, resources: object) -> Placement:
    need = need_of(resources)  # type: ignore[arg-type]  # resources
    where = place(made, need)
    assert where is not None
    made.hold(replica, Holding(where, need))
    return where


def test_fractions_are_rounded_up_to_thousandths() -> None:
    """A third of a card is 334 thousandths, so three of them are not four."""
    need = need_of(needs(fraction=1 / 3, cpu=0.0001))
    assert (need.gpu_milli, need.cpu_milli) == (334, 1)
    assert need_of(needs(fraction=0.1, cpu=0.3)).gpu_milli == 100


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([needs(), needs(gpus=1), needs(fraction=0.3)]))))
def test_giving_back_restores_what_was_free(taken: list[tuple[int, object]]) -> None:
    """After all is released a node is as free as an empty one, whatever was held over what before."""
    made = ledger(node(gpus=3))
    for index, resources in taken:
        need = need_of(resources)  # type: ignore[arg-type]  # resources
        where = place(made, need)
        if where is not None:
            made.hold(f"r{index}", Holding(where, need))
    for index in range(10):
        made.release(f"r{index}")
    fresh = ledger(node(gpus=3)).nodes["n1"]
    assert made.nodes["n1"] == fresh
    assert not made.holdings


def test_a_holding_is_released_once() -> None:
    """The second release says that there was nothing."""
    made = ledger(node())
    fill(made, "r", needs(gpus=1))
    assert (made.release("r"), made.release("r")) == (True, False)


def test_what_is_held_before_the_node_is_known_counts_when_it_comes() -> None:
    """Replicas on a node that has not reported yet hold their cards as soon as it does."""
    made = ledger()
    made.hold("r", Holding(Placement(node="n1", gpus=("n1-gpu-0",)), need_of(needs(gpus=1))))
    made.hold("s", Holding(Placement(node="n1"), need_of(needs())))
    made.release("s")
    made.set_node(node(gpus=2))
    assert made.nodes["n1"].free_cards == {"n1-gpu-0": 0, "n1-gpu-1": MILLI}
    assert made.nodes["n1"].whole_cards == 1


def test_a_node_that_shrank_is_overcommitted_until_something_goes() -> None:
    """Less than nothing is free; the rest of the pool goes on."""
    made = ledger(node(memory=4 * GI))
    fill(made, "r", needs(memory=3 * GI))
    made.set_node(node(memory=2 * GI))
    assert [one.name for one in made.overcommitted()] == ["n1"]
    made.release("r")
    assert made.overcommitted() == []


@pytest.mark.parametrize(
    ("nodes", "resources", "where"),
    [
        pytest.param([node("a", gpus=4), node("b", gpus=2)], needs(gpus=2), ("b", 2), id="fewest-cards-left"),
        pytest.param([node("a", gpus=1), node("b", gpus=0)], needs(), ("b", 0), id="no-gpu-no-card"),
        pytest.param([node("b"), node("a")], needs(gpus=1), ("a", 1), id="name-decides"),
        pytest.param([node("a", cpu=64), node("b", cpu=8)], needs(gpus=1), ("b", 1), id="least-cores-left"),
        pytest.param([node("a", cpu=0.5), node("b")], needs(), ("b", 0), id="too-few-cores"),
        pytest.param([node("a", memory=1), node("b")], needs(), ("b", 0), id="too-little-memory"),
    ],
)
def test_best_fit_over_nodes(nodes: list[object], resources: object, where: tuple[str, int]) -> None:
    """The node where the least is left wins; the name breaks ties."""
    found = place(ledger(*nodes), need_of(resources))  # type: ignore[arg-type]  # resources
    assert found is not None
    assert (found.node, len(found.gpus)) == where


def test_best_fit_over_cards() -> None:
    """A fraction goes to the fullest card that still has room, a whole card to the first that nobody uses."""
    made = ledger(node(gpus=3))
    assert fill(made, "a", needs(fraction=0.6)).gpus == ("n1-gpu-0",)
    assert fill(made, "b", needs(fraction=0.5)).gpus == ("n1-gpu-1",)
    assert fill(made, "c", needs(fraction=0.5)).gpus == ("n1-gpu-1",)
    assert fill(made, "d", needs(fraction=0.4)).gpus == ("n1-gpu-0",)
    assert fill(made, "e", needs(gpus=1)).gpus == ("n1-gpu-2",)
    assert place(made, need_of(needs(fraction=0.1))) is None


def test_a_lack_names_the_nearest_node_and_claims_everywhere() -> None:
    """The message is about the node that lacks least; the claim is to all that is lacking anywhere."""
    made = ledger(node("a", gpus=1, cpu=1), node("b", gpus=1, cpu=2))
    fill(made, "x", needs(gpus=1, cpu=2))
    fill(made, "y", needs(cpu=1))
    found = lack(made, need_of(needs(gpus=1, cpu=1)))
    assert (found.kinds, found.claims, found.ever) == ((Kind.CPU,), (Kind.GPU, Kind.CPU), True)
    assert found.message == "needs 1 core; 0 of 3 are free"


def test_together_is_more_than_each() -> None:
    """When every part would fit on some node but no node has all of it, the message says so."""
    made = ledger(node("a", gpus=2, cpu=1), node("b", gpus=0, cpu=64))
    found = lack(made, need_of(needs(gpus=1, cpu=8)))
    assert (found.ever, found.message) == (False, "needs 1 GPU, 8 cores, 1Gi of memory together; no node has that")


def test_no_cards_at_all() -> None:
    """A machine without GPUs says that no node has one."""
    found = lack(ledger(node(gpus=0)), need_of(needs(gpus=1)))
    assert found.message == "needs 1 GPU; no node has one"


def split(name: str = "n1", *profiles: str) -> CardsObserved:
    """A node with one whole card and these MIG instances."""
    instances = (Card(id=f"{name}-mig-{i}", profile=profile) for i, profile in enumerate(profiles))
    return CardsObserved(node=name, cpu=64.0, memory_bytes=512 * GI, cards=(Card(id=f"{name}-gpu"), *instances))


def test_instances_are_given_whole_and_only_for_their_profile() -> None:
    """A profile gets an instance of it, on the node with the fewest; a card or a part of one never gets an instance."""
    made = ledger(split("a", "1g.5gb", "1g.5gb", "2g.10gb"), split("b", "1g.5gb"))
    assert fill(made, "r0", needs(mig="1g.5gb")) == Placement(node="b", gpus=("b-mig-0",))
    assert [fill(made, f"r{i}", needs(mig="1g.5gb")).gpus for i in (1, 2)] == [("a-mig-0",), ("a-mig-1",)]
    assert place(made, need_of(needs(mig="1g.5gb"))) is None
    assert fill(made, "r3", needs(fraction=0.5)).gpus == ("b-gpu",)
    assert fill(made, "r4", needs(gpus=1)).gpus == ("a-gpu",)
    assert place(made, need_of(needs(gpus=1))) is None
    made.release("r1")
    assert place(made, need_of(needs(mig="1g.5gb"))) == Placement(node="a", gpus=("a-mig-0",))


def test_what_is_lacking_of_instances() -> None:
    """Held now, or of a profile that is not here: two different answers."""
    made = ledger(split("a", "1g.5gb"))
    fill(made, "r0", needs(mig="1g.5gb"))
    held, unknown = lack(made, need_of(needs(mig="1g.5gb"))), lack(made, need_of(needs(mig="3g.20gb")))
    assert (held.ever, held.message) == (True, "needs MIG profile 1g.5gb; 0 of 1 are free")
    assert (unknown.ever, unknown.message) == (False, "needs MIG profile 3g.20gb; the cards here are split into 1g.5gb")
    assert lack(made, need_of(needs(gpus=2))).message == "needs 2 GPUs; the largest node has 1 GPU"
